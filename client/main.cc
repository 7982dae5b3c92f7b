// leeway-client: hosts one or many clients; their data never leaves it.
#include <malloc.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/builtin_worker.h"
#include "client/connection.h"
#include "client/job.h"
#include "client/process_worker.h"
#include "client/worker_program.h"
#include "common/credentials.h"
#include "common/log.h"
#include "common/mutex.h"
#include "common/process.h"
#include "common/status.h"
#include "common/usage.h"
#include "common/version.h"

namespace leeway {
namespace {

#ifdef __AVX512F__
constexpr char kBuild[] = " (AVX-512)";
#else
constexpr char kBuild[] = "";
#endif

struct Flags {
  std::string server;
  std::string name;
  BuiltinWorkerOptions worker;
  ProcessWorkerOptions program;
  double program_start_seconds = 120;
  double program_deadline_seconds = 600;
  size_t threads = 0;
  size_t keep_mb = 1024;
  double give_up_seconds = 60;
  TlsFiles tls;
  bool insecure_anywhere = false;
  bool exit_with_stdin = false;
  bool mpi = false;
  LogFlags log;
};

// Of a program that computes instead of this one.
void DeclareWorkerFlags(CLI::App& app, Flags& flags) {
  app.add_option("--worker", flags.program.command,
                 "Let this command compute, with a model and data of its own (docs/worker.md); it "
                 "is started again when it ends")
      ->excludes("data");
  app.add_option("--worker-fd", flags.program.fd,
                 "The same with a program that runs: an inherited socket")
      ->excludes("data")
      ->excludes("--worker");
  app.add_option("--worker-deadline", flags.program_deadline_seconds,
                 "Longest time that the worker may take for one client's task, in seconds")
      ->capture_default_str();
  app.add_option("--worker-start-seconds", flags.program_start_seconds,
                 "Longest time until the worker says hello, in seconds")
      ->capture_default_str();
}

void Declare(CLI::App& app, Flags& flags) {
  app.set_version_flag("--version", absl::StrCat("leeway-client ", kVersion, kBuild));
  app.add_option("--server", flags.server, "The server's address, host:port or unix:path")
      ->required();
  app.add_option("data", flags.worker.data,
                 "Data directories, one per client: train_x.npy, train_y.npy and, if there is a "
                 "test part, test_x.npy, test_y.npy. A client's name is its directory's. Or "
                 "DIR/synthetic.json:FIRST-LAST: clients of a synthetic problem, made on the fly");
  app.add_option("--evaluator", flags.worker.evaluators,
                 "Directory of a central test set, test_x.npy and test_y.npy: it evaluates and is "
                 "never asked to train. Join it before the clients: a run does not wait for it")
      ->allow_extra_args(false);
  DeclareWorkerFlags(app, flags);
  app.add_option("--name", flags.name, "Name of this process in the server's log");
  app.add_option("--threads", flags.threads, "Clients computed at a time; 0: one per core");
  app.add_option("--keep-mb", flags.keep_mb,
                 "Memory for keeping clients that were made on the fly; the others are regenerated "
                 "for every order")
      ->capture_default_str();
  app.add_option("--state", flags.worker.state_directory,
                 "Directory for what clients keep between the rounds of a run, if its algorithm "
                 "asks for it (scaffold); give the same one after a restart")
      ->capture_default_str();
  app.add_option("--give-up", flags.give_up_seconds,
                 "Seconds without a server after which to give up")
      ->capture_default_str();
  app.add_option("--tls-ca", flags.tls.ca, "The authority that made the server's certificate");
  app.add_option("--tls-cert", flags.tls.certificate, "This process's certificate (PEM)");
  app.add_option("--tls-key", flags.tls.key, "Its private key (PEM)");
  app.add_flag("--insecure-anywhere", flags.insecure_anywhere,
               "Without TLS, talk to a server on another machine: anybody in between can read and "
               "alter models and reports");
  app.add_flag("--exit-with-stdin", flags.exit_with_stdin,
               "Stop when standard input ends (for programs that start clients)");
  app.add_flag("--mpi", flags.mpi,
               "This is a rank of an MPI job (mpirun, srun), whose ranks the server sees as one "
               "process: each hosts a share of the data given here; docs/clusters.md");
  DeclareLogFlags(app, flags.log);
  app.footer(
      "Examples:\n"
      "  leeway-client --server 127.0.0.1:4760 data/client_00 data/client_01\n"
      "  leeway-client --server 127.0.0.1:4760 data/million/synthetic.json:0-499999\n"
      "  leeway-client --server 127.0.0.1:4760 --worker 'python3 my_client.py'\n"
      "  leeway-client --server fl.example.org:4760 --tls-ca ca.crt --tls-cert a.crt --tls-key "
      "a.key data/a\n"
      "  mpirun -n 4 leeway-client --mpi --server head:4760 --insecure-anywhere data/client_*\n\n"
      "The log goes to standard error.\n\n"
      "Exit codes: 0 the run is over, 1 refused or no server, 2 wrong usage or bad data, 3 the run "
      "has failed.");
}

int Fail(int code, const absl::Status& status) {
  absl::FPrintF(stderr, "leeway-client: %s\n", std::string(status.message()));
  return code;
}

// Of what TakePart has returned. Whoever started this process hears of a failed run from the
// server, too.
int CodeOf(const absl::Status& outcome) { return absl::IsAborted(outcome) ? kRunFailedCode : 1; }

// An installation for any x86-64 with AVX2 may hold a second build, for CPUs with
// AVX-512, whose vectors are twice as wide: where it can run, it takes over.
// LEEWAY_PORTABLE=1 keeps the first.
void HandOverToFasterBuild(char** argv) {
#if defined(__x86_64__) && !defined(__AVX512F__)
  const char* portable = std::getenv("LEEWAY_PORTABLE");
  if (portable != nullptr && absl::string_view(portable) == "1") return;
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512cd") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl")) {
    return;
  }
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path faster =
      own.parent_path().parent_path() / "lib/leeway/x86-64-v4/leeway-client";
  if (!error && std::filesystem::exists(faster, error)) execv(faster.c_str(), argv);
#else
  (void)argv;
#endif
}

// Set when the run is over: the worker may hang up then.
std::atomic<bool> run_over = false;

[[noreturn]] void WorkerGone() {
  absl::FPrintF(stderr, "leeway-client: the worker that started this process has gone\n");
  _exit(1);
}

// Ends this process with the worker that has started it, also between orders. The worker's
// last word is passed on first.
void ExitWithWorker(int fd, std::shared_ptr<Mutex> answering) {
  std::thread([fd, answering = std::move(answering)] {
    pollfd poller = {fd, POLLRDHUP, 0};
    while (poll(&poller, 1, -1) < 0) {
    }
    MutexLock lock(answering.get());
    if (!run_over) WorkerGone();
  }).detach();
}

absl::Status TakePartWithProgram(Flags& flags, Job& job, const ConnectionOptions& options,
                                 bool& started) {
  ProcessWorkerOptions& program = flags.program;
  program.start = absl::Seconds(flags.program_start_seconds);
  program.deadline = absl::Seconds(flags.program_deadline_seconds);
  program.on_gone = WorkerGone;
  LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<ProcessWorker> worker,
                          ProcessWorker::Start(program));
  started = true;
  if (program.fd >= 0) ExitWithWorker(program.fd, options.answering);
  const absl::Status outcome = job.TakePart(*worker, options);
  run_over = true;
  worker->Finish(outcome.message());
  return outcome;
}

int Main(int argc, char** argv) {
  HandOverToFasterBuild(argv);
  TrustLockOrder();
  Flags flags;
  CLI::App app("Leeway's client: trains on its own data, sends back model changes.",
               "leeway-client");
  Declare(app, flags);
  if (const std::optional<int> code = ParseOrExit(app, argc, argv)) return *code;
  absl::StatusOr<std::unique_ptr<Job>> job = EnterJob(flags.mpi, argv);
  if (!job.ok()) return Fail(2, job.status());
  // Keep freed update buffers: fresh pages for each would cost more than the work.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  BlockTerminationSignals();
  // A reader of the log that goes away does not end the client.
  std::signal(SIGPIPE, SIG_IGN);
  // Never destroyed: a signal may come while this process ends.
  static Log& log = *new Log(STDERR_FILENO, flags.log.Format(), flags.log.Level());
  const absl::Cleanup flush = [] { log.Flush(absl::Seconds(1)); };
  OnTermination(flags.exit_with_stdin, [] {
    LogLine line;
    line.what = "left";
    line.text = "stopped before the end of the run; started again, it goes on where the run is";
    log.Write(line);
    log.Flush(absl::Seconds(1));
    WorkerProgram::KillAll();
    _exit(130);  // what a client keeps is on the disk
  });
  const auto credentials = ChannelCredentials(flags.tls, flags.server, flags.insecure_anywhere);
  if (!credentials.ok()) {
    // The worker that started this process says it to its user, who may not see this log.
    if (flags.program.fd >= 0) {
      ProcessWorker::Refuse(flags.program.fd, credentials.status().message());
    }
    return Fail(2, credentials.status());
  }
  ConnectionOptions options;
  options.server = flags.server;
  options.credentials = *credentials;
  options.name = flags.name.empty() ? absl::StrCat("pid ", getpid()) : flags.name;
  options.give_up = absl::Seconds(flags.give_up_seconds);
  options.log = &log;
  if (!flags.program.command.empty() || flags.program.fd >= 0) {
    bool started = false;
    const absl::Status outcome = TakePartWithProgram(flags, **job, options, started);
    return outcome.ok() ? 0 : Fail(started ? CodeOf(outcome) : 2, outcome);
  }
  flags.worker.threads =
      flags.threads > 0 ? flags.threads : std::max(1u, std::thread::hardware_concurrency());
  flags.worker.keep_bytes = flags.keep_mb << 20;
  if (const absl::Status share = (*job)->TakeShare(flags.worker); !share.ok()) {
    return Fail(2, share);
  }
  absl::StatusOr<std::unique_ptr<BuiltinWorker>> worker = BuiltinWorker::Load(flags.worker);
  if (!worker.ok()) return Fail(2, worker.status());
  const absl::Status outcome = (*job)->TakePart(**worker, options);
  return outcome.ok() ? 0 : Fail(CodeOf(outcome), outcome);
}

}  // namespace
}  // namespace leeway

int main(int argc, char** argv) { return leeway::Main(argc, argv); }
