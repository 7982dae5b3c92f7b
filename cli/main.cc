// The command `leeway`. Flags are read here and passed on explicitly.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/certs.h"
#include "cli/compare.h"
#include "cli/dashboard.h"
#include "cli/data.h"
#include "cli/drift.h"
#include "cli/health.h"
#include "cli/remedies.h"
#include "cli/report.h"
#include "cli/run.h"
#include "cli/starter.h"
#include "cli/study.h"
#include "cli/verify.h"
#include "client/import/child.h"
#include "client/import/command.h"
#include "common/credentials.h"
#include "common/usage.h"
#include "common/version.h"
#include "records/json_text.h"
#include "records/show.h"

namespace leeway {
namespace {

int UsageError(absl::string_view text) {
  absl::FPrintF(stderr, "leeway: %s\n", text);
  return kExitUsage;
}

// A mistyped word gets a suggestion, which CLI11 does not give. Empty if `word`
// is one of the app's subcommands or an option.
std::string UnknownWord(const CLI::App& app, const std::string& path, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (word.empty() || word[0] == '-') return "";
  if (std::find(names.begin(), names.end(), word) != names.end()) return "";
  const std::string nearest = NearestWord(word, names);
  const std::string text = absl::StrCat("there is no command `", path, " ", word, "`; ");
  if (!nearest.empty()) return absl::StrCat(text, "did you mean `", path, " ", nearest, "`?");
  return absl::StrCat(text, "there are: ", absl::StrJoin(names, ", "), " (see `", path,
                      " --help`)");
}

CLI::App* AddSynthetic(CLI::App& data, SyntheticOptions& options) {
  CLI::App* command = data.add_subcommand(
      "synthetic", "Write the paper's synthetic regression problem: one directory per client");
  command->add_option("--out", options.out, "Directory to make")->required();
  command->add_option("--clients", options.clients, "Number of clients")->capture_default_str();
  command->add_option("--samples", options.samples, "Examples of each client")
      ->capture_default_str();
  command->add_option("--dimension", options.dimension, "Inputs of an example")
      ->capture_default_str();
  command->add_option("--noise-sd", options.noise_sd, "Standard deviation of the targets' noise")
      ->capture_default_str();
  command
      ->add_option("--truth-sd", options.truth_sd,
                   "Standard deviation of w*; with 0, w* is the model that runs start from")
      ->capture_default_str();
  command->add_option("--seed", options.seed, "Seed; the inputs do not depend on the noise")
      ->capture_default_str();
  command->add_option("--conflict", options.conflict,
                      "Client optima w* + CONFLICT (nu_c - mean nu) u: they differ with the "
                      "inputs' scale nu_c, along the mean input u = (1, ..., 1)/sqrt(d), in "
                      "which Hessians differ most");
  command->add_flag("--identical", options.identical, "All clients have the same data");
  command->add_flag("--equal-hessians", options.equal_hessians,
                    "All clients have the same inputs; their optima are w* + N(0, I)");
  command->add_option("--condition", options.condition,
                      "Condition number of expected Hessians, with centred inputs (default: as in "
                      "the paper)");
  command->add_flag("--on-the-fly", options.on_the_fly,
                    "Write how to make the clients instead of their data: each is made when it is "
                    "asked to work, so there may be a million");
  command->footer(
      "Examples:\n"
      "  leeway data synthetic --out data/paper\n"
      "  leeway data synthetic --out data/quiet --noise-sd 0.1 --seed 7\n"
      "  leeway data synthetic --out data/conflict --conflict 0.1\n"
      "  leeway data synthetic --out data/small --clients 8 --samples 50 --dimension 5\n"
      "  leeway data synthetic --out data/million --clients 1000000 --on-the-fly");
  return command;
}

CLI::App* AddRun(CLI::App& app, RunOptions& options) {
  CLI::App* command =
      app.add_subcommand("run", "Run a config on this machine, with real server and clients");
  command->add_option("CONFIG", options.config, "The run's config (text proto)")->required();
  command->add_option("--data", options.data, "Directory with one directory per client");
  command->add_option("--out", options.out, "Directory for records, models and logs");
  command->add_flag(
      "--check", options.check,
      "Only check the config, and with --data whether every client's data fit it, and "
      "estimate rounds, bytes and time; start nothing");
  command
      ->add_option("--processes", options.processes,
                   "Client processes (default: one per client up to 100, then two per core)")
      ->check(CLI::Range(1, 1'000'000));
  command
      ->add_option(
          "--mpi", options.mpi,
          "Host all clients in one MPI job with this many ranks (mpirun must be installed)")
      ->check(CLI::Range(1, 1'000'000))
      ->excludes("--processes");
  command->add_flag("--tls", options.tls,
                    "Mutual TLS between the processes, with certificates made for this run");
  command
      ->add_flag("--control", options.control,
                 "Run it again with the examples dealt at random among clients of the same sizes, "
                 "in OUT/control, and compare both verdicts")
      ->excludes("--check");
  command->add_option("--dashboard", options.dashboard,
                      "Show the run as a web page on this PORT of loopback, or on HOST:PORT");
  command->add_option("--epochs-from", options.epochs_from,
                      "Repeat who took part when in the run in this directory, round by round");
  command->footer(
      "Examples:\n"
      "  leeway run experiments/paper_synthetic.textproto --data data/paper --out runs/paper\n"
      "  leeway run my.textproto --data data/paper --out runs/mine --processes 4\n"
      "  leeway run my.textproto --data data/paper --out runs/mine --dashboard 8760\n"
      "  leeway run --check my.textproto\n"
      "  leeway run my.textproto --data data/paper --out runs/mine --control\n"
      "A run that was stopped is resumed by the same command.\n"
      "Exit codes: 0 done, 1 the run failed, 2 wrong usage or config, 130 stopped by Ctrl-C.");
  return command;
}

struct VerifyOptions {
  std::string directory;
  std::string chain_key;
  bool json = false;
};

CLI::App* AddVerify(CLI::App& app, VerifyOptions& options) {
  CLI::App* command =
      app.add_subcommand("verify", "Check a run's records: hashes, accepted clients, model chain");
  command->add_option("DIR", options.directory, "The --out or --state directory of the run")
      ->required();
  command->add_option("--chain-key", options.chain_key,
                      "File with the secret that was given to leeway-server --chain-key");
  command->add_flag("--json", options.json, "For programs: counts and problems");
  command->footer(
      "Examples:\n"
      "  leeway verify runs/paper\n"
      "Exit codes: 0 everything follows, 1 something does not (it is named), 2 no run.");
  return command;
}

int VerifyCommand(const VerifyOptions& options) {
  absl::StatusOr<std::string> key = "";
  if (!options.chain_key.empty()) key = ReadSecretFile(options.chain_key);
  if (!key.ok()) {
    UsageError(key.status().message());
    return kExitUsage;
  }
  const absl::StatusOr<Verification> result = VerifyRun(options.directory, *key);
  if (!result.ok()) {
    UsageError(result.status().message());
    return absl::IsNotFound(result.status()) ? kExitUsage : kExitFailed;
  }
  if (options.json) {
    const nlohmann::ordered_json json = {{"rounds", result->rounds},
                                         {"reports", result->reports},
                                         {"models", result->models},
                                         {"problems", result->problems}};
    absl::PrintF("%s\n", JsonText(json));
    return result->problems.empty() ? kExitOk : kExitFailed;
  }
  for (const std::string& problem : result->problems) {
    absl::FPrintF(stderr, "leeway: %s: %s\n", options.directory, problem);
  }
  if (!result->problems.empty()) return kExitFailed;
  absl::PrintF("%s: %d rounds, %d accepted reports, %d models: everything follows\n",
               options.directory, result->rounds, result->reports, result->models);
  return kExitOk;
}

struct ShowOptions {
  std::string directory;
  bool json = false;
};

CLI::App* AddShow(CLI::App& app, ShowOptions& options) {
  CLI::App* command = app.add_subcommand("show", "Show a run: finished or still running");
  command->add_option("DIR", options.directory, "The --out directory of the run")->required();
  command->add_flag("--json", options.json, "For programs: everything, numbers in full");
  command->footer(
      "Examples:\n"
      "  leeway show runs/paper\n"
      "  leeway show runs/paper --json | python3 -m json.tool");
  return command;
}

CLI::App* AddDrift(CLI::App& app, DriftOptions& options) {
  CLI::App* command =
      app.add_subcommand("drift", "Tell whether heterogeneity hurts FedAvg here, up to which H");
  command->add_option("DIR", options.directory, "The --out directory of the run")->required();
  command->add_flag("--json", options.json, "For programs: the same, numbers in full");
  command->footer(
      "The run's config needs the phases optimum and fixed_point, and should have constants\n"
      "and a probe at OPTIMUM.\n"
      "Examples:\n"
      "  leeway drift runs/paper\n"
      "  leeway drift runs/paper --json | python3 -m json.tool");
  return command;
}

CLI::App* AddReport(CLI::App& app, ReportOptions& options) {
  CLI::App* command =
      app.add_subcommand("report", "Write a page with the run's charts and tables, SVG and CSV");
  command->add_option("DIR", options.directory, "The --out directory of the run")->required();
  command->add_option("--out", options.out,
                      "The page to write (default: DIR/report/report.html, with SVG and CSV files "
                      "beside it; else they go to NAME_files for NAME.html)");
  command->footer(
      "Works on runs that are not finished, too.\n"
      "Examples:\n"
      "  leeway report runs/paper\n"
      "  leeway report runs/paper --out paper.html");
  return command;
}

CLI::App* AddInit(CLI::App& app, StarterOptions& options) {
  CLI::App* command =
      app.add_subcommand("init", "Write a commented config to start from, for data at hand");
  command->add_option("--data", options.data, "Directory with one directory per client")
      ->required();
  command->add_option("--out", options.out, "The config to write; must not exist")->required();
  command
      ->add_option("--model", options.model,
                   "linear, softmax, or a network: mlp, cnn (images), lstm (sequences of tokens) "
                   "(default: linear, softmax or lstm, by the targets)")
      ->check(CLI::IsMember(
          std::vector<std::string>(std::begin(kStarterModels), std::end(kStarterModels))));
  command->footer(
      "It loads all of the data, and says what is wrong with it. linear and softmax are convex:\n"
      "only they have an optimum w*, and with it a verdict. For networks the drift is measured\n"
      "while training and at its end.\n"
      "Examples:\n"
      "  leeway init --data data/mine --out mine.textproto\n"
      "  leeway init --data data/mine --out net.textproto --model mlp\n"
      "  leeway run --check mine.textproto --data data/mine");
  return command;
}

CLI::App* AddHealth(CLI::App& app, HealthOptions& options) {
  CLI::App* command = app.add_subcommand("health", "Ask a server whether it serves");
  command->add_option("SERVER", options.server, "Its address, host:port")->required();
  command->add_option("--tls-ca", options.tls.ca, "The authority that made its certificate");
  command->add_option("--tls-cert", options.tls.certificate, "Our own certificate (PEM)");
  command->add_option("--tls-key", options.tls.key, "Its private key (PEM)");
  command->add_flag("--insecure-anywhere", options.insecure_anywhere,
                    "Without TLS, ask a server on another machine");
  command->add_option("--seconds", options.seconds, "How long to wait")->capture_default_str();
  command->footer(
      "It uses the standard gRPC health service.\n"
      "Example:\n"
      "  leeway health 127.0.0.1:4760\n"
      "Exit codes: 0 it serves, 1 it does not, 2 wrong usage.");
  return command;
}

CLI::App* AddDashboard(CLI::App& app, DashboardOptions& options) {
  CLI::App* command =
      app.add_subcommand("dashboard", "Show a run as a web page: finished or still running");
  command->add_option("DIR", options.directory, "The --out directory of the run")->required();
  command
      ->add_option("--listen", options.listen,
                   "Where to serve: a PORT of loopback, or HOST:PORT; port 0 picks a free one")
      ->capture_default_str();
  command->footer(
      "It serves until Ctrl-C. The page is read-only and needs no network but this address.\n"
      "Examples:\n"
      "  leeway dashboard runs/paper\n"
      "  leeway dashboard runs/paper --listen 9000");
  return command;
}

int WriteData(const SyntheticOptions& options) {
  if (absl::Status status = WriteSynthetic(options); !status.ok()) {
    const bool usage = absl::IsInvalidArgument(status) || absl::IsAlreadyExists(status);
    UsageError(status.message());
    return usage ? kExitUsage : kExitFailed;
  }
  absl::PrintF("%s: %d clients with %d examples of dimension %d, noise sd %g, seed %d\n",
               options.out, options.clients, options.samples, options.dimension, options.noise_sd,
               options.seed);
  return kExitOk;
}

// In a child process: whatever ends it, nothing half written stays behind.
int DataCommand(const SyntheticOptions& options) {
  return RunInChild(
      ChildLimits(), [&options] { return WriteData(options); },
      [&options](pid_t child) {
        std::error_code ignored;
        std::filesystem::remove_all(TemporaryPath(options.out, child), ignored);
      });
}

int ShowCommand(const ShowOptions& options) {
  const absl::StatusOr<RunSummary> run = LoadRun(options.directory);
  if (!run.ok()) {
    UsageError(run.status().message());
    return absl::IsNotFound(run.status()) ? kExitUsage : kExitFailed;
  }
  absl::PrintF("%s", options.json ? RunJson(*run) : RunText(*run));
  return std::fflush(stdout) == 0 ? kExitOk : kExitFailed;
}

// The commands with their options.
struct Commands {
  CLI::App app{"Federated learning that measures its own drift.", "leeway"};
  SyntheticOptions synthetic_options;
  RunOptions run_options;
  ShowOptions show_options;
  DriftOptions drift_options;
  ReportOptions report_options;
  DashboardOptions dashboard_options;
  StarterOptions starter_options;
  HealthOptions health_options;
  int import_exit_code = 0;  // set by the commands that deal with people's own files
  VerifyOptions verify_options;
  int certs_exit_code = 0;
  int study_exit_code = 0;  // of study, remedies and compare
  CLI::App* data = nullptr;
  CLI::App* certs = nullptr;
  CLI::App* verify = nullptr;
  CLI::App* synthetic = nullptr;
  CLI::App* run = nullptr;
  CLI::App* drift = nullptr;
  CLI::App* report = nullptr;
  CLI::App* dashboard = nullptr;
  CLI::App* init = nullptr;
  CLI::App* health = nullptr;
  CLI::App* remedies = nullptr;
  CLI::App* study = nullptr;
  CLI::App* compare = nullptr;

  Commands() {
    app.set_version_flag("--version", absl::StrCat("leeway ", kVersion));
    app.require_subcommand(1);
    app.footer(
        "Examples:\n"
        "  leeway data synthetic --out data/paper\n"
        "  leeway run experiments/paper_synthetic.textproto --data data/paper --out runs/paper\n"
        "  leeway drift runs/paper\n"
        "  leeway report runs/paper\n"
        "`leeway COMMAND --help` explains a command.\n"
        "Exit codes: 0 done, 1 failed, 2 wrong usage, config or data, 130 stopped by Ctrl-C.");
    data = app.add_subcommand("data", "Make, import, partition and describe data sets");
    data->require_subcommand(1);
    data->footer("Examples:\n  leeway data synthetic --out data/paper");
    synthetic = AddSynthetic(*data, synthetic_options);
    AddImportCommands(*data, &import_exit_code);
    study = AddStudyCommand(app, &study_exit_code);
    init = AddInit(app, starter_options);
    run = AddRun(app, run_options);
    AddShow(app, show_options);
    drift = AddDrift(app, drift_options);
    remedies = AddRemediesCommand(app, &study_exit_code);
    report = AddReport(app, report_options);
    compare = AddCompareCommand(app, &study_exit_code);
    certs = AddCertsCommands(app, &certs_exit_code);
    dashboard = AddDashboard(app, dashboard_options);
    health = AddHealth(app, health_options);
    verify = AddVerify(app, verify_options);
  }
};

int Main(int argc, char** argv) {
  Commands commands;
  CLI::App& app = commands.app;
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  std::string unknown = words.empty() ? "" : UnknownWord(app, "leeway", words[0]);
  if (words.size() > 1 && words[0] == "data") {
    unknown = UnknownWord(*commands.data, "leeway data", words[1]);
  }
  if (words.size() > 1 && words[0] == "certs") {
    unknown = UnknownWord(*commands.certs, "leeway certs", words[1]);
  }
  if (!unknown.empty()) return UsageError(unknown);
  if (const std::optional<int> code = ParseOrExit(app, argc, argv)) return *code;
  if (commands.verify->parsed()) return VerifyCommand(commands.verify_options);
  if (commands.certs->parsed()) return commands.certs_exit_code;
  if (commands.study->parsed() || commands.remedies->parsed() || commands.compare->parsed()) {
    return commands.study_exit_code;
  }
  if (commands.drift->parsed()) return DriftCommand(commands.drift_options);
  if (commands.report->parsed()) return ReportCommand(commands.report_options);
  if (commands.health->parsed()) return HealthCommand(commands.health_options);
  if (commands.init->parsed()) return InitCommand(commands.starter_options);
  if (commands.dashboard->parsed()) return DashboardCommand(commands.dashboard_options);
  if (commands.synthetic->parsed()) return DataCommand(commands.synthetic_options);
  if (commands.data->parsed()) return commands.import_exit_code;
  return commands.run->parsed() ? RunCommand(commands.run_options)
                                : ShowCommand(commands.show_options);
}

}  // namespace
}  // namespace leeway

int main(int argc, char** argv) { return leeway::Main(argc, argv); }
