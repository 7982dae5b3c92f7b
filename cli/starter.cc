#include "cli/starter.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/check.h"
#include "cli/run.h"
#include "client/dataset.h"
#include "client/import/federation.h"
#include "common/plural.h"
#include "common/status.h"
#include "common/synthetic.h"
#include "common/utf8.h"
#include "records/config.h"

namespace leeway {
namespace {

// The drift and where FedAvg comes to rest can be had to the last digit.
constexpr char kConvexPhases[] = R"(
# w*, where the global loss is least, from exact federated gradients.
phases { optimum {} }

# Smoothness and convexity of the loss: `auto_step_size: true` below comes from them. At
# w*, for the curvature of softmax regression depends on the model.
phases { constants { point: OPTIMUM@ITERATIONS } }

# The average drift at w*, for these numbers of local steps.
phases { probe { point: OPTIMUM auto_step_size: true steps: [1, 2, 5, 10, 20, 50] } }

# Where FedAvg settles for each of them, and what that costs: the verdict of
# `leeway drift` rests on this.@AFTER
phases { fixed_point { auto_step_size: true steps: [1, 2, 5, 10, 20, 50]@ROUNDS } }

# FedAvg itself: every client takes 10 local steps in each of 100 rounds.
phases { train { rounds: 100 local { auto_step_size: true steps: 10 }@EVALUATE } }
)";

constexpr char kAfterText[] =
    " Beside it, what each of them reaches after 100\n# rounds, as many as are trained below.";

constexpr char kNetworkPhases[] = R"(
# FedAvg: in each of 100 rounds the sampled clients pass once over their data in
# batches of 20. The drift of every round is recorded beside its bound.
phases { train { rounds: 100 local { step_size: 0.1 epochs: 1 batch_size: 20 }@EVALUATE } }

# Does heterogeneity hold training back at 10 local steps? From the trained model, one branch
# takes them between averagings, the other averages after every step.
phases { release { step_size: 0.1 steps: [10] batch_size: 20 } }

# The drift at the end, for several numbers of full-batch local steps.
phases { probe { point: CURRENT step_size: 0.1 steps: [1, 2, 5, 10]@CLIENTS } }
)";

// The model for these data when the user names none.
std::string DefaultModel(const DataFacts& facts) {
  if (facts.sequences) return "lstm";
  return facts.labels ? "softmax" : "linear";
}

bool IsNetwork(const std::string& model) {
  return model == "mlp" || model == "cnn" || model == "lstm";
}

// What the targets must be like for the model to learn them.
absl::Status CheckTargets(const DataFacts& facts, const std::string& model) {
  const std::string remedy =
      absl::StrCat("; leave --model out, or give --model ", DefaultModel(facts), " for these data");
  const auto bad = [&](absl::string_view needs) {
    return absl::InvalidArgumentError(
        absl::StrCat("--model ", model, " needs ", needs, ", but in ", facts.directory, " ",
                     facts.sequences ? "every example has one token per step"
                     : facts.labels  ? "every example has one label"
                                     : "targets are real numbers",
                     remedy));
  };
  if (model == "lstm" && !facts.sequences) return bad("a token per step of a sequence as targets");
  if (model != "lstm" && facts.sequences) return bad("one target per example");
  if (model == "linear" || facts.labels) return absl::OkStatus();
  return bad("labels (whole numbers from 0) as targets");
}

std::string ModelText(const DataFacts& facts, const std::string& model) {
  if (model == "lstm") {
    return absl::StrCat(
        "# Targets are tokens, one per step: a recurrent network. Token 0 is padding.\n"
        "model { lstm { vocabulary: ",
        facts.classes, " embedding: 8 hidden: [64] } }\n");
  }
  if (model == "mlp") {
    return absl::StrCat(
        "# A network of two hidden layers.\n"
        "model { mlp { hidden: [200, 200] classes: ",
        facts.classes, " } }\n");
  }
  if (model == "cnn") {
    return absl::StrCat(
        "# A convolutional network for images.\n"
        "model { cnn { classes: ",
        facts.classes, " } }\n");
  }
  if (model == "linear") {
    if (facts.synthetic) {
      return "# Targets are numbers: linear regression. These were made without an offset; for\n"
             "# others leave the intercept on.\n"
             "model { linear_regression { intercept: false } }\n";
    }
    return "# Targets are numbers: linear regression with an intercept; l2 is the strength of a\n"
           "# quadratic penalty.\n"
           "model { linear_regression { intercept: true l2: 0 } }\n";
  }
  return absl::StrCat(
      "# Targets are labels: softmax regression. The penalty makes the loss strongly convex, so\n"
      "# that w* exists and the drift can be measured there. For a network instead:\n"
      "# leeway init --model mlp",
      facts.shape.size() >= 2 ? " (or cnn, for images)" : "", "\n",
      "model { softmax_regression { classes: ", std::max<uint64_t>(facts.classes, 2),
      " l2: 1e-3 } }\n");
}

// Whether 100 rounds with every number of local steps above cost little beside the rest: some
// seconds.
bool IsCheap(const DataFacts& facts, const std::string& model) {
  constexpr double kSteps = 100 * (1 + 2 + 5 + 10 + 20 + 50);
  constexpr double kOperations = 4;  // of a gradient, for each input and output of an example
  constexpr double kMost = 4e10;
  double inputs = 1;
  for (const uint64_t extent : facts.shape) inputs *= static_cast<double>(extent);
  const double outputs = model == "softmax" ? static_cast<double>(facts.classes) : 1;
  return kSteps * kOperations * static_cast<double>(facts.examples) * inputs * outputs <= kMost;
}

std::string PhasesText(const DataFacts& facts, const std::string& model) {
  const bool tests = facts.evaluator || facts.clients_with_test > 0;
  const bool cheap = IsCheap(facts, model);
  std::string text =
      absl::StrReplaceAll(IsNetwork(model) ? kNetworkPhases : kConvexPhases,
                          {{"@EVALUATE", tests && facts.labels ? " evaluate_every: 10" : ""},
                           {"@AFTER", cheap ? kAfterText : ""},
                           {"@ROUNDS", cheap ? " after_rounds: 100" : ""},
                           {"@CLIENTS", facts.clients > 100 ? " clients: 50" : ""},
                           // Of softmax regression only L is searched for: few iterations do.
                           {"@ITERATIONS", model == "softmax" ? " iterations: 10" : ""}});
  if (facts.evaluator) {
    absl::StrAppend(&text, "\n# Loss and accuracy on the central test set.\n",
                    "phases { evaluate {} }\n");
  } else if (tests && facts.labels) {
    absl::StrAppend(&text, "\n# Loss and accuracy on the test parts of the ",
                    Counted(facts.clients_with_test, "client"),
                    " with one, and how\n# they spread over clients.\n",
                    "phases { evaluate { percentiles: [10, 50, 90] } }\n");
  } else if (tests) {
    absl::StrAppend(&text, "\n# Loss on the test parts of the ",
                    Counted(facts.clients_with_test, "client"), " with one.\n",
                    "phases { evaluate {} }\n");
  }
  return text;
}

int Fail(int code, absl::string_view text) {
  absl::FPrintF(stderr, "leeway: %s\n", text);
  return code;
}

}  // namespace

v1::DataSchema DataFacts::Schema() const {
  v1::DataSchema schema;
  schema.mutable_feature_shape()->Add(shape.begin(), shape.end());
  schema.set_labels(labels);
  return schema;
}

namespace {

// Adds one client; those before it must look alike.
absl::Status AddClient(const Dataset& client, const std::string& directory, DataFacts& facts) {
  const v1::DataSchema schema = client.Schema();
  const std::vector<uint64_t> shape(schema.feature_shape().begin(), schema.feature_shape().end());
  if (facts.examples > 0 && (shape != facts.shape || schema.labels() != facts.labels)) {
    return absl::InvalidArgumentError(absl::StrCat(
        directory, ": one example has the shape (", absl::StrJoin(shape, ", "),
        "), those of the clients before it (", absl::StrJoin(facts.shape, ", "),
        "), or only one of them has integers as targets; prepare all clients' data alike"));
  }
  facts.shape = shape;
  facts.labels = schema.labels();
  const std::vector<uint64_t>& targets = client.train.y.shape();
  facts.sequences = facts.labels && targets.size() > 1 && targets[1] > 1;
  facts.examples += client.train.examples();
  facts.clients_with_test += client.test.has_value() ? 1 : 0;
  if (!facts.labels) return absl::OkStatus();
  for (const int64_t label : client.train.y.As<int64_t>()) {
    facts.classes = std::max(facts.classes, static_cast<uint64_t>(std::max<int64_t>(label, 0)) + 1);
  }
  return absl::OkStatus();
}

// What import would have said about these data.
absl::StatusOr<std::vector<std::string>> Notes(const DataFacts& facts, const ColumnScales& scales) {
  LEEWAY_ASSIGN_OR_RETURN(const std::optional<Json> description, ReadDescription(facts.directory));
  Json json = {{"samples", {{"train", facts.examples}}}};
  if (description.has_value() && description->contains("features")) {
    json["features"] = (*description)["features"];
  }
  if (facts.labels && !facts.sequences) json["classes"] = facts.classes;
  return NotesOn(json, scales);
}

}  // namespace

absl::StatusOr<DataFacts> ReadFacts(const std::string& data,
                                    const std::function<absl::Status(const Dataset&)>& visit) {
  DataFacts facts;
  facts.directory = data;
  const std::filesystem::path synthetic = std::filesystem::path(data) / kSyntheticFile;
  facts.synthetic = std::filesystem::exists(synthetic) ||
                    std::filesystem::exists(std::filesystem::path(data) / "truth.npy");
  if (std::filesystem::exists(synthetic)) {
    LEEWAY_ASSIGN_OR_RETURN(const SyntheticProblem problem, ReadSynthetic(synthetic));
    facts.clients = problem.clients;
    facts.examples = uint64_t{problem.clients} * problem.samples;
    facts.shape = {problem.dimension};
    if (visit) LEEWAY_RETURN_IF_ERROR(visit(Dataset::Make(SyntheticClients(problem), 0)));
    return facts;
  }
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<std::string> directories, ClientDirectories(data));
  facts.clients = directories.size();
  facts.evaluator = !EvaluatorDirectory(data).empty();
  ColumnScales scales;
  for (const std::string& directory : directories) {
    LEEWAY_ASSIGN_OR_RETURN(const Dataset client, Dataset::Load(directory));
    LEEWAY_RETURN_IF_ERROR(AddClient(client, directory, facts));
    scales.Add(RowsOf(client.train.x));
    if (visit) LEEWAY_RETURN_IF_ERROR(visit(client));
  }
  LEEWAY_ASSIGN_OR_RETURN(facts.notes, Notes(facts, scales));
  return facts;
}

absl::StatusOr<std::string> StarterConfig(const DataFacts& facts, const std::string& wanted) {
  const std::string model = wanted.empty() ? DefaultModel(facts) : wanted;
  LEEWAY_RETURN_IF_ERROR(CheckTargets(facts, model));
  // A name may hold anything, and a comment ends with its line.
  const std::string directory = OneLine(facts.directory, 4096);
  std::string text =
      absl::StrCat("# A run on ", directory, ": ", facts.clients, " clients, ", facts.examples,
                   " training examples of shape (", absl::StrJoin(facts.shape, ", "), ").\n",
                   "# Check it:  leeway run --check THIS_FILE --data ", directory,
                   "\n# Run it:    leeway run THIS_FILE --data ", directory,
                   " --out runs/first\n"
                   "# Every field is described in docs/configuration.md.\n\n"
                   "# The same seed, data and config give the same bits.\nseed: 1\n\n",
                   ModelText(facts, model));
  if (facts.clients > 100) {
    absl::StrAppend(&text,
                    "\n# A round asks 50 of them and needs 40 within ten minutes. A client whose "
                    "process has been\n# gone for 20 seconds gives its place to another.\n"
                    "cohort { size: 50 minimum_reports: 40 deadline_seconds: 600 "
                    "replace_after_seconds: 20 }\n");
  } else if (IsNetwork(model) && facts.clients >= 5) {
    absl::StrAppend(&text,
                    "\n# Every round asks all clients and needs four fifths of them within ten "
                    "minutes. It does not\n# wait for one whose process has been gone for 20 "
                    "seconds.\ncohort { minimum_reports: ",
                    (facts.clients * 4 + 4) / 5, " deadline_seconds: 600 }\n");
  } else {
    // Measures of one run are compared with one another: they need the same clients.
    absl::StrAppend(&text,
                    "\n# Every round asks all clients and waits for all of them, also for one "
                    "that has gone and must\n# be started again: ten minutes at most, five times. "
                    "Then the run fails, and goes on with that\n# round when its server is "
                    "started again. With minimum_reports it goes on without the rest.\n"
                    "cohort { deadline_seconds: 600 }\n");
  }
  text += PhasesText(facts, model);
  // What is written must pass its own check.
  LEEWAY_ASSIGN_OR_RETURN(const v1::RunConfig config, ParseConfig(text, "the config"));
  LEEWAY_RETURN_IF_ERROR(CheckAgainst(config, facts).status());
  return text;
}

int InitCommand(const StarterOptions& options) {
  if (std::filesystem::exists(options.out)) {
    return Fail(kExitUsage, absl::StrCat(options.out,
                                         " is there already; choose another --out, or "
                                         "remove it"));
  }
  const absl::StatusOr<DataFacts> facts = ReadFacts(options.data);
  if (!facts.ok()) return Fail(kExitUsage, facts.status().message());
  const absl::StatusOr<std::string> text = StarterConfig(*facts, options.model);
  if (!text.ok()) return Fail(kExitUsage, text.status().message());
  std::ofstream out(options.out);
  out << *text;
  out.close();
  if (!out) return Fail(kExitFailed, absl::StrCat("cannot write ", options.out));
  for (const std::string& note : facts->notes) absl::PrintF("Note: %s\n", note);
  const absl::StatusOr<v1::RunConfig> config = ParseConfig(*text, options.out);
  absl::PrintF("%s", EstimateText(*config, *CheckAgainst(*config, *facts), *facts));
  absl::PrintF(
      "%s: a config for %d clients; read it, then\n  leeway run %s --data %s --out runs/first\n",
      options.out, facts->clients, options.out, options.data);
  return kExitOk;
}

}  // namespace leeway
