#include "cli/run.h"

#include <poll.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "cli/certs.h"
#include "cli/check.h"
#include "cli/control.h"
#include "cli/estimate.h"
#include "cli/progress.h"
#include "cli/spawn.h"
#include "common/credentials.h"
#include "common/process.h"
#include "common/status.h"
#include "common/synthetic.h"
#include "records/config.h"
#include "records/same_run.h"
#include "records/show.h"
#include "records/verdict.h"

namespace leeway {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kServerStart = absl::Seconds(60);
constexpr absl::Duration kAddressCheck = absl::Milliseconds(10);
// A server that ends takes its clients with it: a client's death is only judged
// when the server is still there after this time.
constexpr absl::Duration kJudgement = absl::Seconds(1);
constexpr absl::Duration kClientsEnd = absl::Seconds(10);
constexpr absl::Duration kGrace = absl::Seconds(5);
constexpr size_t kMostReports = 3;
constexpr char kServer[] = "leeway-server";
constexpr char kAnyPort[] = "127.0.0.1:0";
// A certificate that names more clients than this would be too long for TLS.
constexpr size_t kMostGrants = 500;

void PrintError(absl::string_view text) { absl::FPrintF(stderr, "leeway: %s\n", text); }

absl::Status MakeDirectory(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot create ", path));
}

// Refuses to go on with another run's state.
absl::Status CheckSameRun(const RunSummary& stored, const v1::RunConfig& config, size_t clients) {
  const std::string remedy =
      absl::StrCat("choose another --out, or remove ", stored.directory, " to start over");
  const auto known = static_cast<size_t>(
      std::count_if(stored.roster.begin(), stored.roster.end(),
                    [](const StoredClient& client) { return client.examples > 0; }));
  if (known != clients) {
    return absl::FailedPreconditionError(absl::StrCat(stored.directory, " holds a run with ", known,
                                                      " clients, but the data has ", clients, "; ",
                                                      remedy));
  }
  // The number of clients may come from the command line; it was compared above.
  v1::RunConfig now = config;
  now.mutable_cohort()->set_clients(stored.config.cohort().clients());
  const ConfigChanges changes = CompareConfigs(stored.config, now);
  if (changes.refused.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(stored.directory, " holds a run with another config: ", changes.refused, "; ",
                   remedy, " (", kMayChange, ")"));
}

// One run from its preparation to its end.
class Launch {
 public:
  explicit Launch(const RunOptions& options) : options_(options), children_(&signals_) {}

  // Everything that can be wrong with what the user asked for. Starts nothing.
  absl::Status Prepare();
  // An earlier run in the same directory is complete.
  bool complete() const { return stored_.has_value() && stored_->state == v1::DONE; }
  const RunSummary& stored() const { return *stored_; }
  // Starts, watches, ends. Returns the exit code.
  int Execute();

 private:
  absl::Status MakeCertificates();
  absl::Status StartServer();
  absl::Status StartClients(const std::string& address);
  absl::StatusOr<std::string> AwaitAddress();
  int Follow(const std::string& address);
  // Exit code if the run cannot go on.
  std::optional<int> Handle(const ChildExit& exit);
  std::optional<int> JudgeDeaths();
  int Conclude();
  // Ends the children, and before that our own stream: a server that stops waits
  // for its streams.
  void Stop() {
    observer_.reset();
    children_.Stop(kGrace);
  }
  int Interrupted(int signal);
  int Fail(absl::string_view text);

  std::string Log(absl::string_view name) const {
    return absl::StrCat(options_.out, "/logs/", name, ".log");
  }
  std::string Certificates() const { return options_.out + "/certs"; }
  // The flags for one process's certificate, if TLS is wanted.
  std::vector<std::string> TlsFlags(const std::string& name) const {
    if (!options_.tls) return {};
    const TlsFiles files = FilesOf(Certificates(), name);
    return {"--tls-ca", files.ca, "--tls-cert", files.certificate, "--tls-key", files.key};
  }
  std::string ProcessName(size_t process) const {
    const int width = std::max<int>(3, static_cast<int>(absl::StrCat(processes_ - 1).size()));
    return absl::StrFormat("client_%0*d", width, process);
  }
  std::string AddressFile() const { return options_.out + "/server.address"; }

  const RunOptions options_;
  Signals signals_;
  Children children_;
  v1::RunConfig config_;
  std::vector<std::string> clients_;
  bool made_on_the_fly_ = false;  // no directories: the data's synthetic.json says how
  std::string evaluator_;         // directory of the central test set, if there is one
  std::optional<RunSummary> stored_;
  std::optional<ProgressView> view_;
  std::optional<Observer> observer_;

  std::optional<ChildExit> server_exit_;
  int signal_ = 0;                 // that asked us to stop
  std::vector<ChildExit> deaths_;  // of clients, that the run may not survive
  absl::Time judgement_ = absl::InfiniteFuture();
  size_t processes_ = 0;
  size_t processes_gone_ = 0;
  bool gathering_ = true;
};

absl::Status Launch::Prepare() {
  if (options_.out.empty()) {
    return absl::InvalidArgumentError(
        "there is no --out; give a directory for the run's records, models and logs");
  }
  if (options_.data.empty()) {
    return absl::InvalidArgumentError(
        "there is no data; give --data DIR, a directory with one directory per client (make one "
        "with `leeway data synthetic --out DIR`)");
  }
  LEEWAY_ASSIGN_OR_RETURN(config_, LoadConfig(options_.config));
  made_on_the_fly_ = fs::exists(fs::path(options_.data) / kSyntheticFile);
  LEEWAY_ASSIGN_OR_RETURN(clients_, ClientDirectories(options_.data));
  evaluator_ = EvaluatorDirectory(options_.data);
  LEEWAY_RETURN_IF_ERROR(CheckClients(config_, clients_.size()));
  LEEWAY_RETURN_IF_ERROR(ProgramBeside(kServer).status());
  LEEWAY_RETURN_IF_ERROR(ProgramBeside("leeway-client").status());
  LEEWAY_RETURN_IF_ERROR(MakeDirectory(options_.out + "/logs"));
  absl::StatusOr<RunSummary> stored = LoadRun(options_.out);
  if (absl::IsNotFound(stored.status())) return absl::OkStatus();
  LEEWAY_RETURN_IF_ERROR(stored.status());
  if (!stored->begun) return absl::OkStatus();
  LEEWAY_RETURN_IF_ERROR(CheckSameRun(*stored, config_, clients_.size()));
  stored_ = *std::move(stored);
  return absl::OkStatus();
}

int Launch::Execute() {
  std::FILE* const out = options_.brief ? stderr : stdout;
  view_.emplace(config_, out, OutputStyle::Of(out));
  const uint32_t processes =
      options_.mpi > 0 ? 1  // to the server
      : options_.processes > 0
          ? options_.processes
          : DefaultProcesses(clients_.size(), std::thread::hardware_concurrency());
  processes_ = std::min<size_t>(processes, clients_.size());
  const std::string cost = stored_.has_value() ? RoundsText(RoundsOf(config_, 0))
                                               : CostText(config_, options_.data, clients_.size());
  view_->Note(absl::StrCat(stored_.has_value() ? "resuming" : "starting", " ",
                           config_.name().empty() ? "the run" : config_.name(), ": ",
                           clients_.size(), " clients",
                           evaluator_.empty() ? "" : " and an evaluator", " in ",
                           options_.mpi > 0 ? options_.mpi : processes_,
                           options_.mpi > 0  ? " MPI ranks"
                           : processes_ == 1 ? " process"
                                             : " processes",
                           ", ", cost, ", logs in ", options_.out, "/logs"));
  if (stored_.has_value() && stored_->state == v1::FAILED) {
    view_->Note(absl::StrCat("it had failed: ", stored_->message));
  }
  if (options_.tls) {
    if (absl::Status status = MakeCertificates(); !status.ok()) return Fail(status.message());
  }
  if (absl::Status status = StartServer(); !status.ok()) return Fail(status.message());
  const absl::StatusOr<std::string> address = AwaitAddress();
  if (signal_ != 0) return Interrupted(signal_);
  if (server_exit_.has_value()) return Conclude();
  if (!address.ok()) return Fail(address.status().message());
  if (absl::Status status = StartClients(*address); !status.ok()) return Fail(status.message());
  return Follow(*address);
}

// For this start only: the processes that hold them end with us.
absl::Status Launch::MakeCertificates() {
  std::error_code error;
  fs::remove_all(Certificates(), error);
  LEEWAY_RETURN_IF_ERROR(MakeAuthority(Certificates(), "leeway run", 365));
  IssueOptions server;
  server.name = "server";
  server.hosts = {"127.0.0.1"};
  LEEWAY_RETURN_IF_ERROR(Issue(Certificates(), server));
  IssueOptions observer;
  observer.name = "observer";
  observer.observer = true;
  LEEWAY_RETURN_IF_ERROR(Issue(Certificates(), observer));
  const auto shares = Deal(clients_, static_cast<uint32_t>(processes_));
  for (size_t i = 0; i < shares.size(); ++i) {
    IssueOptions client;
    client.name = ProcessName(i);
    if (shares[i].size() > kMostGrants) {
      client.grants.push_back({"", kMostExamples});
    } else {
      for (const std::string& path : shares[i]) {
        client.grants.push_back({fs::path(path).filename(), kMostExamples});
      }
    }
    if (i == 0 && !evaluator_.empty()) {
      client.grants.push_back({fs::path(evaluator_).filename(), kMostExamples, true});
    }
    LEEWAY_RETURN_IF_ERROR(Issue(Certificates(), client));
  }
  return absl::OkStatus();
}

// A socket file among the run's own: faster than TCP, and nobody else on this machine
// can open it. Its name may only be so long.
std::string LocalAddress(const std::string& out) {
  const std::string path = out + "/server.sock";
  return path.size() < sizeof(sockaddr_un::sun_path) ? "unix:" + path : kAnyPort;
}

absl::Status Launch::StartServer() {
  LEEWAY_ASSIGN_OR_RETURN(const std::string program, ProgramBeside(kServer));
  std::error_code error;
  fs::remove(AddressFile(), error);  // of an earlier process
  std::vector<std::string> argv = {program,
                                   "--config",
                                   options_.config,
                                   "--state",
                                   options_.out,
                                   "--clients",
                                   absl::StrCat(clients_.size()),
                                   "--listen",
                                   options_.tls ? kAnyPort : LocalAddress(options_.out),
                                   "--address-file",
                                   AddressFile(),
                                   "--exit-with-stdin"};
  const std::vector<std::string> tls = TlsFlags("server");
  argv.insert(argv.end(), tls.begin(), tls.end());
  if (!options_.dashboard.empty()) {
    argv.insert(argv.end(), {"--dashboard", options_.dashboard});
  }
  if (!options_.epochs_from.empty()) {
    argv.insert(argv.end(), {"--epochs-from", options_.epochs_from});
  }
  return children_.Start(kServer, argv, Log("server"));
}

absl::StatusOr<std::string> Launch::AwaitAddress() {
  const absl::Time deadline = absl::Now() + kServerStart;
  while (absl::Now() < deadline) {
    std::ifstream file(AddressFile());
    std::string address;
    if (std::getline(file, address) && !address.empty()) {
      std::string dashboard;
      if (std::getline(file, dashboard)) view_->Note(absl::StrCat("dashboard on ", dashboard));
      return address;
    }
    signal_ = signals_.Wait(kAddressCheck);
    if (signal_ != 0) return absl::CancelledError();
    for (ChildExit& exit : children_.Reap()) server_exit_ = std::move(exit);
    if (server_exit_.has_value()) return absl::UnavailableError(server_exit_->Describe());
  }
  return absl::DeadlineExceededError(absl::StrCat("leeway-server did not start to listen within ",
                                                  absl::FormatDuration(kServerStart), "; see ",
                                                  Log("server")));
}

// What comes before a client's own arguments: its path or, for ranks of an MPI job, how to
// start them. Ranks share the cores; mpirun refuses more ranks than cores, and root, unless
// told. All of them see when standard input ends.
std::vector<std::string> ClientProgram(const std::string& program, uint32_t ranks) {
  if (ranks == 0) return {program};
  const uint32_t threads = std::max(1u, std::thread::hardware_concurrency() / ranks);
  return {"/usr/bin/env",
          "OMPI_ALLOW_RUN_AS_ROOT=1",
          "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
          "mpirun",
          "-n",
          absl::StrCat(ranks),
          "--oversubscribe",
          "--stdin",
          "all",
          "--bind-to",
          "none",
          program,
          "--mpi",
          "--threads",
          absl::StrCat(threads)};
}

absl::Status Launch::StartClients(const std::string& address) {
  LEEWAY_ASSIGN_OR_RETURN(const std::string program, ProgramBeside("leeway-client"));
  const std::vector<std::vector<std::string>> shares =
      Deal(clients_, static_cast<uint32_t>(processes_));
  size_t dealt = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    const std::string name = ProcessName(i);
    std::vector<std::string> argv = ClientProgram(program, options_.mpi);
    argv.insert(argv.end(),
                {"--server", address, "--state", options_.out + "/clients", "--exit-with-stdin"});
    const std::vector<std::string> tls = TlsFlags(name);
    argv.insert(argv.end(), tls.begin(), tls.end());
    if (made_on_the_fly_) {
      argv.push_back(absl::StrCat(options_.data, "/", kSyntheticFile, ":", dealt, "-",
                                  dealt + shares[i].size() - 1));
      dealt += shares[i].size();
    } else {
      argv.insert(argv.end(), shares[i].begin(), shares[i].end());
    }
    // Beside clients, so that it has joined when the last of them has.
    if (i == 0 && !evaluator_.empty()) argv.insert(argv.end(), {"--evaluator", evaluator_});
    const std::string hosted =
        shares[i].size() == 1 ? shares[i][0] : absl::StrCat(shares[i][0], " to ", shares[i].back());
    LEEWAY_RETURN_IF_ERROR(children_.Start(absl::StrCat(name, " (", hosted, ")"), argv, Log(name)));
  }
  return absl::OkStatus();
}

int Launch::Follow(const std::string& address) {
  const auto credentials = ChannelCredentials(
      options_.tls ? FilesOf(Certificates(), "observer") : TlsFiles(), address, false);
  if (!credentials.ok()) return Fail(credentials.status().message());
  observer_.emplace(address, *credentials);
  while (true) {
    pollfd waits[] = {{.fd = signals_.fd(), .events = POLLIN, .revents = 0},
                      {.fd = observer_->fd(), .events = POLLIN, .revents = 0}};
    const bool judging = judgement_ != absl::InfiniteFuture();
    poll(waits, 2, judging ? static_cast<int>(absl::ToInt64Milliseconds(kJudgement)) : -1);
    if (const int signal = signals_.Take(); signal != 0) return Interrupted(signal);
    for (const v1::Observation& news : observer_->Take()) {
      if (news.has_progress()) gathering_ = news.progress().state() == v1::GATHERING;
      view_->Update(news, absl::Now());
    }
    for (const ChildExit& exit : children_.Reap()) {
      if (const std::optional<int> code = Handle(exit)) return *code;
    }
    if (server_exit_.has_value()) return Conclude();
    if (const std::optional<int> code = JudgeDeaths()) return *code;
  }
}

std::optional<int> Launch::Handle(const ChildExit& exit) {
  if (exit.name == kServer) {
    server_exit_ = exit;
    return std::nullopt;
  }
  ++processes_gone_;
  if (exit.ok()) return std::nullopt;
  // The server says the same, and ends.
  if (WIFEXITED(exit.status) && WEXITSTATUS(exit.status) == kRunFailedCode) return std::nullopt;
  // A round that does not need all its clients can go on without this one. To begin, the run
  // needs them all.
  if (!gathering_ && config_.cohort().minimum_reports() > 0 && processes_gone_ < processes_) {
    view_->Note(absl::StrCat("went on without a client: ", exit.Report()));
    return std::nullopt;
  }
  deaths_.push_back(exit);
  judgement_ = std::min(judgement_, absl::Now() + kJudgement);
  return std::nullopt;
}

std::optional<int> Launch::JudgeDeaths() {
  if (absl::Now() < judgement_) return std::nullopt;
  std::string text = "the run needs all its clients, but ";
  for (size_t i = 0; i < std::min(deaths_.size(), kMostReports); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : "\nand ", deaths_[i].Report());
  }
  if (deaths_.size() > kMostReports) {
    absl::StrAppend(&text, "\nand ", deaths_.size() - kMostReports, " more");
  }
  absl::StrAppend(&text, "\nFix this and repeat the command: it resumes the run.");
  return Fail(text);
}

int Launch::Conclude() {
  children_.Await(kClientsEnd);
  Stop();
  const absl::StatusOr<RunSummary> run = LoadRun(options_.out);
  const bool known = run.ok() && run->begun;
  if (known) {
    // What the stream did not bring before the server was gone.
    v1::Observation rest;
    rest.mutable_progress()->set_state(run->state == v1::DONE ? v1::DONE : v1::FAILED);
    for (const v1::RoundRecord& record : run->records) {
      if (record.round() > view_->last_round()) *rest.add_rounds() = record;
    }
    view_->Update(rest, absl::Now());
  }
  if (known && run->state == v1::FAILED) {
    return Fail(absl::StrCat("the run failed: ", run->message, DivergenceText(*run)));
  }
  if (!server_exit_->ok() || !known || run->state != v1::DONE) {
    Fail(absl::StrCat(server_exit_->Report(), known ? "\nThe same command resumes the run." : ""));
    const bool usage =
        WIFEXITED(server_exit_->status) && WEXITSTATUS(server_exit_->status) == kExitUsage;
    return usage ? kExitUsage : kExitFailed;
  }
  if (!options_.brief) absl::FPrintF(stdout, "%s", ResultsText(*run));
  return kExitOk;
}

int Launch::Interrupted(int signal) {
  view_->Note("stopping");
  Stop();
  view_->Note("stopped; the same command resumes the run");
  return kExitSignal + signal;
}

int Launch::Fail(absl::string_view text) {
  view_->Clear();
  Stop();
  PrintError(text);
  return kExitFailed;
}

}  // namespace

int RunCommand(const RunOptions& options) {
  if (options.check) return CheckCommand(options.config, options.data);
  if (options.control) return ControlCommand(options);
  RunOptions checked = options;
  while (checked.out.size() > 1 && checked.out.back() == '/') checked.out.pop_back();
  Launch launch(checked);
  if (absl::Status status = launch.Prepare(); !status.ok()) {
    PrintError(status.message());
    return kExitUsage;
  }
  if (!launch.complete()) return launch.Execute();
  if (options.brief) return kExitOk;
  absl::FPrintF(stdout, "This run is already complete.\n%s", ResultsText(launch.stored()));
  return kExitOk;
}

absl::StatusOr<std::vector<std::string>> ClientDirectories(const std::string& data) {
  std::error_code error;
  std::vector<std::string> clients;
  if (const fs::path file = fs::path(data) / kSyntheticFile; fs::exists(file, error)) {
    LEEWAY_ASSIGN_OR_RETURN(const SyntheticProblem problem, ReadSynthetic(file));
    for (uint32_t c = 0; c < problem.clients; ++c) {
      clients.push_back(SyntheticClientName(c, problem.clients));
    }
    return clients;
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(data, error)) {
    std::error_code unreadable;
    if (fs::exists(entry.path() / "train_x.npy", unreadable)) clients.push_back(entry.path());
  }
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("cannot read the data directory ", data, ": ", error.message(),
                     "; give --data a directory with one directory per client"));
  }
  if (clients.empty()) {
    return absl::NotFoundError(
        absl::StrCat(data,
                     " holds no client: no directory in it has a train_x.npy; make one with "
                     "`leeway data synthetic --out DIR`"));
  }
  std::sort(clients.begin(), clients.end());
  return clients;
}

std::string EvaluatorDirectory(const std::string& data) {
  const fs::path directory = fs::path(data) / "evaluator";
  std::error_code error;
  const bool central =
      fs::exists(directory / "test_x.npy", error) && !fs::exists(directory / "train_x.npy", error);
  return central ? directory.string() : "";
}

uint32_t DefaultProcesses(size_t clients, uint32_t cores) {
  if (clients <= 100) return static_cast<uint32_t>(clients);
  return 2 * std::max(cores, 1u);
}

std::vector<std::vector<std::string>> Deal(const std::vector<std::string>& clients,
                                           uint32_t processes) {
  const size_t shares = std::clamp<size_t>(processes, 1, clients.size());
  std::vector<std::vector<std::string>> dealt(shares);
  for (size_t i = 0; i < shares; ++i) {
    // The first `clients % shares` get one more.
    const auto begin = [&](size_t share) {
      return static_cast<std::ptrdiff_t>(share * (clients.size() / shares) +
                                         std::min(share, clients.size() % shares));
    };
    dealt[i].assign(clients.begin() + begin(i), clients.begin() + begin(i + 1));
  }
  return dealt;
}

}  // namespace leeway
