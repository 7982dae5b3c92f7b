#include "cli/starter.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/run.h"
#include "client/dataset.h"
#include "common/status.h"
#include "common/synthetic.h"

namespace leeway {
namespace {

// The drift and where FedAvg comes to rest can be had to the last digit.
constexpr char kConvexPhases[] = R"(
# w*, where the global loss is least, from exact federated gradients.
phases { optimum {} }

# Smoothness and convexity of the loss: `auto_step_size: true` below comes from them. At
# w*, for the curvature of softmax regression depends on the model.
phases { constants { point: OPTIMUM } }

# The average drift at w*, for these numbers of local steps.
phases { probe { point: OPTIMUM auto_step_size: true steps: [1, 2, 5, 10, 20, 50] } }

# Where FedAvg comes to rest for each of them, and what that costs: the verdict of
# `leeway drift` rests on this.
phases { fixed_point { auto_step_size: true steps: [1, 2, 5, 10, 20, 50] } }

# FedAvg itself: every client takes 10 local steps in each of 100 rounds.
phases { train { rounds: 100 local { auto_step_size: true steps: 10 } } }
)";

constexpr char kNetworkPhases[] = R"(
# FedAvg: in each of 100 rounds the sampled clients pass once over their data in
# batches of 20. The drift of every round is recorded beside its bound.
phases { train { rounds: 100 local { step_size: 0.1 epochs: 1 batch_size: 20 } } }

# The drift at the end, for several numbers of full-batch local steps.
phases { probe { point: CURRENT step_size: 0.1 steps: [1, 2, 5, 10] } }
)";

std::string ModelText(const DataFacts& facts) {
  if (facts.sequences) {
    return absl::StrCat(
        "# Targets are tokens, one per step: a recurrent network. Token 0 is padding.\n"
        "model { lstm { vocabulary: ",
        facts.classes, " embedding: 8 hidden: [64] } }\n");
  }
  if (!facts.labels) {
    return "# Targets are numbers: linear regression, a penalty of l2/2 |w|^2 if you like.\n"
           "model { linear_regression { l2: 0 } }\n";
  }
  std::string text = absl::StrCat(
      "# Targets are labels: softmax regression. The penalty makes the loss strongly convex, so\n"
      "# that w* exists and the drift can be measured there.\n"
      "model { softmax_regression { classes: ",
      facts.classes, " l2: 1e-3 } }\n",
      "# A network instead (then leave out the phases constants, optimum and fixed_point):\n"
      "# model { mlp { hidden: [200, 200] classes: ",
      facts.classes, " } }\n");
  if (facts.shape.size() >= 2) {
    absl::StrAppend(&text, "# model { cnn { classes: ", facts.classes, " } }\n");
  }
  return text;
}

int Fail(int code, absl::string_view text) {
  absl::FPrintF(stderr, "leeway: %s\n", text);
  return code;
}

}  // namespace

absl::StatusOr<DataFacts> ReadFacts(const std::string& data) {
  const std::filesystem::path synthetic = std::filesystem::path(data) / kSyntheticFile;
  if (std::filesystem::exists(synthetic)) {
    LEEWAY_ASSIGN_OR_RETURN(const SyntheticProblem problem, ReadSynthetic(synthetic));
    DataFacts facts;
    facts.directory = data;
    facts.clients = problem.clients;
    facts.examples = uint64_t{problem.clients} * problem.samples;
    facts.shape = {problem.dimension};
    return facts;
  }
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<std::string> directories, ClientDirectories(data));
  DataFacts facts;
  facts.directory = data;
  facts.clients = directories.size();
  facts.test = true;
  for (const std::string& directory : directories) {
    LEEWAY_ASSIGN_OR_RETURN(const Dataset client, Dataset::Load(directory));
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
    facts.sequences = facts.labels && client.train.y.shape().size() > 1;
    facts.examples += client.train.examples();
    facts.test = facts.test && client.test.has_value();
    if (!facts.labels) continue;
    for (const int64_t label : client.train.y.As<int64_t>()) {
      facts.classes =
          std::max(facts.classes, static_cast<uint64_t>(std::max<int64_t>(label, 0)) + 1);
    }
  }
  return facts;
}

std::string StarterConfig(const DataFacts& facts) {
  std::string text = absl::StrCat(
      "# A run on ", facts.directory, ": ", facts.clients, " clients, ", facts.examples,
      " training examples of shape (", absl::StrJoin(facts.shape, ", "), ").\n",
      "# Check it:  leeway run --check THIS_FILE\n"
      "# Run it:    leeway run THIS_FILE --data ",
      facts.directory,
      " --out runs/first\n"
      "# Every field is described in docs/configuration.md.\n\n"
      "# The same seed, data and config give the same bits.\nseed: 1\n\n",
      ModelText(facts));
  if (facts.clients > 100) {
    absl::StrAppend(&text,
                    "\n# A round asks 50 of them and needs 40 within ten minutes.\n"
                    "cohort { size: 50 minimum_reports: 40 deadline_seconds: 600 }\n");
  } else {
    absl::StrAppend(&text,
                    "\n# Every round asks all clients and waits for all of them, ten minutes at "
                    "most.\n# With minimum_reports it goes on without the rest.\n"
                    "cohort { deadline_seconds: 600 }\n");
  }
  absl::StrAppend(&text, facts.sequences ? kNetworkPhases : kConvexPhases);
  if (facts.test) {
    absl::StrAppend(&text,
                    "\n# Loss and accuracy on the clients' test parts.\n"
                    "phases { evaluate {} }\n");
  }
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
  std::ofstream out(options.out);
  out << StarterConfig(*facts);
  out.close();
  if (!out) return Fail(kExitFailed, absl::StrCat("cannot write ", options.out));
  absl::PrintF(
      "%s: a config for %d clients; read it, then\n  leeway run %s --data %s --out runs/first\n",
      options.out, facts->clients, options.out, options.data);
  return kExitOk;
}

}  // namespace leeway
