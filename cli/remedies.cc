#include "cli/remedies.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/estimate.h"
#include "cli/remedy_configs.h"
#include "cli/run.h"
#include "common/model_file.h"
#include "common/model_layout.h"
#include "common/nearest_word.h"
#include "common/status.h"
#include "records/show.h"

namespace leeway {
namespace {

namespace fs = std::filesystem;

struct RemediesOptions {
  std::string run;
  std::string data;
  std::string out;
  std::string tries;               // as the user gave it, separated by commas
  std::vector<std::string> names;  // of them; without, DefaultRemedies
  uint32_t processes = 0;
  bool json = false;
};

// The parameters of a run's final model, and how they are laid out.
struct FinalModel {
  ModelLayout layout;
  Parameters values;
};

absl::StatusOr<FinalModel> ReadFinal(const RunSummary& run) {
  const std::string path = run.ModelPath("final");
  std::ifstream in(path, std::ios::binary);
  std::ostringstream bytes;
  if (path.empty() || !(bytes << in.rdbuf())) {
    return absl::NotFoundError(absl::StrCat(run.directory, " has no readable final model ", path,
                                            "; finish it with `leeway run` first"));
  }
  LEEWAY_ASSIGN_OR_RETURN(const ModelFileContents found, ListTensors(bytes.str(), path));
  FinalModel model;
  model.layout = {found.tensors, found.float64};
  LEEWAY_ASSIGN_OR_RETURN(model.values, DecodeModel(bytes.str(), found.tensors, path));
  return model;
}

// Root mean square over parameters of final less initial.
double Moved(const FinalModel& model, uint64_t seed) {
  const Parameters initial = InitialModel(model.layout, seed);
  return std::visit(
      [&](const auto& values) {
        const auto& before = std::get<std::decay_t<decltype(values)>>(initial);
        return (values - before).template cast<double>().norm() /
               std::sqrt(static_cast<double>(values.size()));
      },
      model.values);
}

// The data must be those of the run: the same clients.
absl::Status CheckSameClients(const RunSummary& run, const std::string& data) {
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<std::string> directories, ClientDirectories(data));
  std::set<std::string> here;
  for (const std::string& directory : directories) here.insert(fs::path(directory).filename());
  std::set<std::string> there;
  for (const StoredClient& client : run.roster) {
    if (client.examples > 0) there.insert(client.id);
  }
  if (here == there) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(data, " holds ", here.size(), " clients, but not those ", there.size(), " that ",
                   run.directory, " was run with; give the --data directory of that run"));
}

absl::Status CheckNames(const std::vector<std::string>& names, const RemedyBasis& basis) {
  std::vector<std::string> known;
  for (const Remedy& remedy : Remedies()) known.push_back(remedy.name);
  for (const std::string& name : names) {
    if (FindRemedy(name) == nullptr) {
      const std::string nearest = NearestWord(name, known);
      return absl::InvalidArgumentError(
          absl::StrCat("--try ", name, ": there is no such remedy; ",
                       nearest.empty() ? absl::StrCat("there are: ", absl::StrJoin(known, ", "))
                                       : absl::StrCat("did you mean ", nearest, "?")));
    }
    if (IsPersonal(name) && !basis.clients_test) {
      return absl::InvalidArgumentError(
          absl::StrCat("--try ", name, ": what fine-tuning gains shows on test parts only, and no ",
                       "client has one; import the data with --test-fraction, or leave it out"));
    }
    if (name == kFineTuneHead && basis.head.empty()) {
      return absl::InvalidArgumentError(
          "--try fine_tune_head: this model has one layer only; use fine_tune, or a network");
    }
  }
  return absl::OkStatus();
}

// What the records of a try's run say.
RemedyOutcome Read(const std::string& name, const RunSummary& run, const ModelLayout& layout) {
  RemedyOutcome out;
  out.name = name;
  if (run.state == v1::FAILED) out.failure = run.message;
  for (const v1::RoundRecord& record : RecordsOf(run, v1::TRAIN_ROUND)) {
    ++out.rounds;
    const int phase = static_cast<int>(record.phase());
    const RoundBytes bytes = TrainingBytes(run.config, run.config.phases(phase).train(), layout);
    out.bytes += record.reports() * (bytes.down + bytes.up);
  }
  for (const v1::RoundRecord& record : RecordsOf(run, v1::PROBE_ROUND)) out.loss = record.loss();
  const std::vector<v1::RoundRecord> evaluations = EvaluationsOf(run);
  if (evaluations.empty()) return out;
  const v1::RoundRecord& record = evaluations.back();
  const bool central = record.test_examples() == 0 && record.central_examples() > 0;
  out.test_loss = central ? record.central_loss() : record.test_loss();
  if (record.has_comparison()) out.against_fedavg = record.comparison();
  if (run.config.model().has_linear_regression()) return out;
  out.accuracy = central ? record.central_accuracy() : record.accuracy();
  if (record.percentiles_size() > 0) out.worst_accuracy = record.percentiles(0).accuracy();
  return out;
}

// The tries of one command, one after the other.
class Tries {
 public:
  Tries(RemediesOptions options, RemedyBasis basis, ModelLayout layout)
      : options_(std::move(options)), basis_(std::move(basis)), layout_(std::move(layout)) {}

  // The exit code if it is not 0, after which the outcomes so far stand.
  int Run();
  const std::vector<RemedyOutcome>& outcomes() const { return outcomes_; }

 private:
  std::string Directory(absl::string_view name) const {
    return absl::StrCat(options_.out, "/", name);
  }
  // kExitOk also if the run itself has failed: that is an outcome.
  int Try(const std::string& name);
  int Fail(absl::string_view text, int code) {
    absl::FPrintF(stderr, "leeway: %s\n", text);
    return code;
  }

  const RemediesOptions options_;
  const RemedyBasis basis_;
  const ModelLayout layout_;
  std::string baseline_;  // FedAvg's final model, from the directory of another
  std::vector<RemedyOutcome> outcomes_;
};

int Tries::Try(const std::string& name) {
  const std::string directory = Directory(name);
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) {
    return Fail(absl::StrCat("cannot create ", directory, ": ", error.message()), kExitFailed);
  }
  RunOptions options;
  options.config = directory + "/config.textproto";
  options.data = options_.data;
  options.out = directory;
  options.processes = options_.processes;
  options.brief = true;
  std::string text;
  google::protobuf::TextFormat::PrintToString(RemedyConfig(basis_, name, baseline_), &text);
  std::ofstream file(options.config);
  file << text;
  file.close();
  if (!file) return Fail(absl::StrCat("cannot write ", options.config), kExitFailed);
  const int code = RunCommand(options);
  const absl::StatusOr<RunSummary> run = LoadRun(directory);
  const bool failed = code == kExitFailed && run.ok() && run->state == v1::FAILED;
  if (code != kExitOk && (!failed || name == kFedAvg)) return code;
  if (!run.ok()) return Fail(run.status().message(), kExitFailed);
  outcomes_.push_back(Read(name, *run, layout_));
  if (IsPersonal(name)) {  // what it starts from has cost as much as FedAvg
    outcomes_.back().rounds = outcomes_.front().rounds;
    outcomes_.back().bytes = outcomes_.front().bytes;
  }
  if (name != kFedAvg) return kExitOk;
  baseline_ = fs::relative(run->ModelPath("final"), directory, error).string();
  baseline_ = absl::StrCat("../", kFedAvg, "/", baseline_);
  return kExitOk;
}

int Tries::Run() {
  std::vector<std::string> names = {kFedAvg};
  names.insert(names.end(), options_.names.begin(), options_.names.end());
  for (size_t i = 0; i < names.size(); ++i) {
    absl::FPrintF(stderr, "%s (%d of %d) in %s\n", names[i], i + 1, names.size(),
                  Directory(names[i]));
    if (const int code = Try(names[i]); code != kExitOk) return code;
  }
  return kExitOk;
}

int RemediesCommand(RemediesOptions options) {
  const auto fail = [](const absl::Status& status, int code) {
    absl::FPrintF(stderr, "leeway: %s\n", status.message());
    return code;
  };
  while (options.run.size() > 1 && options.run.back() == '/') options.run.pop_back();
  if (options.out.empty()) options.out = options.run + "/remedies";
  const absl::StatusOr<RunSummary> run = LoadRun(options.run);
  if (!run.ok()) return fail(run.status(), kExitUsage);
  const absl::StatusOr<FinalModel> model = ReadFinal(*run);
  if (!model.ok()) return fail(model.status(), kExitUsage);
  const auto basis = BasisOf(*run, model->layout, Moved(*model, run->config.seed()));
  if (!basis.ok()) return fail(basis.status(), kExitUsage);
  options.names = absl::StrSplit(options.tries, ',', absl::SkipWhitespace());
  if (options.names.empty()) options.names = DefaultRemedies(*basis);
  if (options.names == std::vector<std::string>{"all"}) options.names = AllRemedies(*basis);
  if (auto status = CheckNames(options.names, *basis); !status.ok())
    return fail(status, kExitUsage);
  if (auto status = CheckSameClients(*run, options.data); !status.ok()) {
    return fail(status, kExitUsage);
  }
  const bool json = options.json;
  Tries tries(std::move(options), *basis, model->layout);
  if (const int code = tries.Run(); code != kExitOk) {
    if (tries.outcomes().size() > 1 && !json) {
      absl::PrintF("Finished so far (the same command goes on):\n\n%s",
                   RemedyText(tries.outcomes()));
    }
    return code;
  }
  absl::PrintF("%s", json ? RemedyJson(tries.outcomes()) : RemedyText(tries.outcomes()));
  return std::fflush(stdout) == 0 ? kExitOk : kExitFailed;
}

}  // namespace

CLI::App* AddRemediesCommand(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<RemediesOptions>();
  CLI::App* command = app.add_subcommand(
      "remedies", "Try what may serve a run's clients better than FedAvg, and compare");
  command->add_option("RUN", options->run, "The --out directory of a finished run")->required();
  command->add_option("--data", options->data, "The data that it was run with")->required();
  command->add_option("--try", options->tries,
                      "What to try, separated by commas, or all (default: what suits the run)");
  command->add_option("--out", options->out,
                      "Directory for the runs, one in each of its own (default: RUN/remedies)");
  command->add_option("--processes", options->processes, "Client processes, as for leeway run")
      ->check(CLI::Range(1, 1'000'000));
  command->add_flag("--json", options->json, "For programs: the same, numbers in full");
  command->footer(
      "FedAvg and each remedy train from the run's initial model with its step size, local steps\n"
      "and number of rounds. The table has, of each final model: the training loss; loss and\n"
      "accuracy on the clients' test parts; the accuracy that the worst tenth of clients do not\n"
      "exceed; how many clients have a lower and a higher loss than with FedAvg's model (on their\n"
      "test parts, else on their training parts); and what was sent.\n"
      "  scaffold   control variates against client drift (twice the bytes)\n"
      "  fedprox    local models are pulled to the global one, mu = 1/(eta H)\n"
      "  fednova    displacements per step: where clients take different numbers of steps\n"
      "  few_steps  one local step per round in the second half of the rounds\n"
      "  adam, adagrad, yogi, nesterov   at the server\n"
      "  fine_tune  each client takes one more round of local steps for itself, all parameters\n"
      "  fine_tune_head  the same with the last layer of a network alone\n"
      "  ditto      each client has a model of its own, pulled to FedAvg's, mu = 1/(eta H)\n"
      "Ctrl-C keeps what is finished; the same command goes on.\n"
      "Examples:\n"
      "  leeway remedies runs/mine --data data/mine\n"
      "  leeway remedies runs/mine --data data/mine --try scaffold,few_steps --json");
  command->callback([options, exit_code] { *exit_code = RemediesCommand(*options); });
  return command;
}

}  // namespace leeway
