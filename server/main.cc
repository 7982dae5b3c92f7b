// leeway-server: holds the global model, samples clients, adds up their reports.
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <malloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/credentials.h"
#include "common/log.h"
#include "common/mutex.h"
#include "common/plural.h"
#include "common/process.h"
#include "common/reason.h"
#include "common/status.h"
#include "common/usage.h"
#include "common/version.h"
#include "dashboard/http.h"
#include "dashboard/metrics.h"
#include "records/config.h"
#include "records/epochs.h"
#include "records/show.h"
#include "server/engine.h"
#include "server/gate.h"
#include "server/listener.h"
#include "server/service.h"

namespace leeway {
namespace {

struct Flags {
  std::string config;
  std::string state;
  std::string listen = "127.0.0.1:4760";
  std::string address_file;
  std::string dashboard;
  uint32_t clients = 0;
  TlsFiles tls;
  std::string revoked;
  std::string behind_proxy;
  std::string chain_key;
  bool insecure_anywhere = false;
  bool exit_with_stdin = false;
  std::string epochs_from;
  LogFlags log;
};

void Declare(CLI::App& app, Flags& flags) {
  app.set_version_flag("--version", absl::StrCat("leeway-server ", kVersion));
  app.add_option("--config", flags.config, "The run: a text proto (see experiments/)")->required();
  app.add_option("--state", flags.state,
                 "Directory of the run's records and models; an interrupted run in it is resumed")
      ->required();
  app.add_option("--listen", flags.listen, "Address to listen on; port 0 picks a free one")
      ->capture_default_str();
  app.add_option("--clients", flags.clients,
                 "Clients to wait for; overrides cohort.clients of the config");
  app.add_option("--address-file", flags.address_file,
                 "Write the address here once the server is ready");
  app.add_option("--tls-ca", flags.tls.ca, "The authority whose clients may take part (PEM)");
  app.add_option("--tls-cert", flags.tls.certificate, "This server's certificate (PEM)");
  app.add_option("--tls-key", flags.tls.key, "Its private key (PEM)");
  app.add_option("--revoked", flags.revoked,
                 "Revocation list of the authority (PEM); read again when it changes");
  app.add_option("--behind-proxy", flags.behind_proxy,
                 "A proxy ends TLS, checks certificates of this authority (PEM) and passes them on "
                 "as a header (docs/security.md); needs --listen unix:PATH");
  app.add_option("--chain-key", flags.chain_key,
                 "File with a secret that seals the run's records, so that nobody without it can "
                 "alter them unnoticed (`leeway verify --chain-key`)");
  app.add_flag("--insecure-anywhere", flags.insecure_anywhere,
               "Without TLS, listen on addresses of other than this machine: anybody who reaches "
               "the port can read models, join as any client and send any report");
  app.add_option("--dashboard", flags.dashboard,
                 "Serve the run as a web page on this PORT of loopback, or on HOST:PORT");
  app.add_flag("--exit-with-stdin", flags.exit_with_stdin,
               "Stop when standard input ends (for programs that start a server)");
  app.add_option("--epochs-from", flags.epochs_from,
                 "Repeat who took part when in the run recorded in this directory: a client enters "
                 "and leaves before the same round as there");
  DeclareLogFlags(app, flags.log);
  app.footer(
      "Examples:\n"
      "  leeway-server --config experiments/paper_synthetic.textproto --state out --clients 2\n"
      "  leeway-client --server 127.0.0.1:4760 data/client_00   # on each client\n"
      "Across machines: give --tls-ca, --tls-cert and --tls-key (see `leeway certs --help`).\n\n"
      "Exit codes: 0 the run is done, 1 it failed, 2 wrong usage, 3 stopped before its end.");
}

absl::Status WriteAddress(const std::string& path, const std::string& address) {
  if (path.empty()) return absl::OkStatus();
  const std::string temporary = path + ".new";
  std::ofstream out(temporary);
  out << address << "\n";
  out.close();
  if (!out || std::rename(temporary.c_str(), path.c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot write --address-file ", path));
  }
  return absl::OkStatus();
}

// A server whose connections the listener takes in.
std::unique_ptr<grpc::Server> StartServer(
    Listener& listener, const std::shared_ptr<grpc::ServerCredentials>& credentials,
    grpc::Service& service, grpc::CallbackGenericService& others) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  auto acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  builder.RegisterService(&service);
  builder.RegisterCallbackGenericService(&others);
  LimitResources(builder);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server != nullptr) listener.Start(std::move(acceptor));
  return server;
}

// Somebody was cut off for flooding the server, and stays out for a while.
void OnFlood(const std::string& caller, const absl::Status& why, Engine& engine, Gate& gate,
             Log& log) {
  engine.CountRefusal(why);
  if (!caller.empty()) gate.ShutOut(caller);
  LogLine line;
  line.level = LogLine::Level::kWarning;
  line.what = "flood";
  line.client = gate.NameOf(caller);
  line.text = std::string(why.message());
  log.Write(line);
}

absl::StatusOr<std::unique_ptr<Listener>> OpenListener(const std::string& address, Engine& engine,
                                                       Gate& gate, Log& log) {
  Listener::Options options;
  options.address = address;
  options.files = RaiseFileLimit();
  options.on_refusal = [&engine](const absl::Status& why) { engine.CountRefusal(why); };
  options.on_flood = [&engine, &gate, &log](const std::string& caller, const absl::Status& why) {
    OnFlood(caller, why, engine, gate, log);
  };
  absl::StatusOr<std::unique_ptr<Listener>> listener = Listener::Open(std::move(options));
  if (listener.ok()) return listener;
  return absl::UnavailableError(absl::StrCat(
      "cannot listen on ", address, " (", listener.status().message(),
      "); is the port in use? Choose another with --listen, or port 0 for any free one"));
}

void Info(Log& log, std::string what, std::string text) {
  LogLine line;
  line.what = std::move(what);
  line.text = std::move(text);
  log.Write(line);
}

// gRPC's own messages, such as handshakes that failed, become lines of our log: limited like
// all others, so that garbage at the port does not fill a disk.
std::atomic<Log*> grpc_log = nullptr;

void LogGrpc(gpr_log_func_args* message) {
  Log* const log = grpc_log;
  if (log == nullptr || message->severity == GPR_LOG_SEVERITY_DEBUG) return;
  LogLine line;
  line.level = message->severity == GPR_LOG_SEVERITY_ERROR ? LogLine::Level::kWarning
                                                           : LogLine::Level::kInfo;
  line.what = "grpc";
  line.text = message->message;
  line.cause = absl::StrCat(message->file, ":", message->line);
  log->Write(line);
}

absl::StatusOr<std::unique_ptr<Gate>> MakeGate(const Flags& flags) {
  if (!flags.behind_proxy.empty()) {
    if (!flags.tls.empty()) {
      return absl::InvalidArgumentError(
          "--behind-proxy leaves TLS to the proxy; leave out --tls-ca, --tls-cert and --tls-key");
    }
    if (!absl::StartsWith(flags.listen, "unix:")) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--behind-proxy trusts whoever can connect, so only the proxy may; --listen is ",
          flags.listen, ", give unix:PATH"));
    }
    return Gate::BehindProxy(flags.behind_proxy, flags.revoked);
  }
  if (!flags.tls.empty()) return Gate::WithCertificates(flags.tls.ca, flags.revoked);
  if (flags.revoked.empty()) return std::make_unique<Gate>();
  return absl::InvalidArgumentError(
      "--revoked needs --tls-ca, --tls-cert and --tls-key, or --behind-proxy");
}

absl::StatusOr<std::unique_ptr<Dashboard>> StartDashboard(const Flags& flags,
                                                          const v1::RunConfig& config,
                                                          const Engine& engine, Metrics& metrics) {
  Dashboard::Options options;
  options.listen = flags.dashboard;
  options.feed.directory = flags.state;
  options.feed.config = config;
  options.feed.live = [&engine] {
    return LiveStatus{engine.progress(), engine.Clients(kMostClientsShown)};
  };
  options.metrics = [&metrics, &engine] {
    return metrics.Text(engine.progress(), *engine.holdings(), ModelsHeld());
  };
  return Dashboard::Start(std::move(options));
}

// The epochs of another run; this one then starts with as many clients.
absl::StatusOr<std::vector<PlannedEpoch>> LoadEpochs(const std::string& directory,
                                                     v1::RunConfig& config) {
  std::vector<PlannedEpoch> planned;
  if (directory.empty()) return planned;
  LEEWAY_ASSIGN_OR_RETURN(const RunSummary run, LoadRun(directory));
  if (run.epochs.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--epochs-from ", directory, ": the run has no epochs: it has not begun or is too old"));
  }
  config.mutable_cohort()->set_clients(run.epochs[0].population());
  for (EpochNames& names : NamesOf(run.epochs, run.roster)) {
    PlannedEpoch& epoch = planned.emplace_back();
    epoch.first_round = names.first_round;
    epoch.entered = std::move(names.entered);
    epoch.entered.insert(epoch.entered.end(), names.returned.begin(), names.returned.end());
    epoch.left = std::move(names.left);
  }
  return planned;
}

void LogListening(const Flags& flags, const v1::RunConfig& config, const Listener& listener,
                  const Dashboard* dashboard, Log& log) {
  Info(log, "listening",
       absl::StrCat("leeway-server ", kVersion, " listening on ", listener.address(), " (",
                    !flags.behind_proxy.empty() ? "behind a proxy"
                    : flags.tls.empty()         ? "no TLS"
                                                : "mutual TLS",
                    "), waiting for ", Counted(config.cohort().clients(), "client")));
  if (dashboard) Info(log, "dashboard", absl::StrCat("dashboard on ", dashboard->url()));
  const Connections::Limits& limits = listener.limits();
  Info(log, "limits",
       absl::StrCat("up to ", limits.all, " connections, ", limits.idle,
                    " of them without a call (", listener.files(), " open files)"));
}

absl::Status Serve(const Flags& flags, Log& log) {
  LEEWAY_ASSIGN_OR_RETURN(const auto credentials,
                          ServerCredentials(flags.tls, flags.listen, flags.insecure_anywhere));
  LEEWAY_ASSIGN_OR_RETURN(std::unique_ptr<Gate> gate, MakeGate(flags));
  LEEWAY_ASSIGN_OR_RETURN(v1::RunConfig config, LoadConfig(flags.config));
  if (flags.clients > 0) config.mutable_cohort()->set_clients(flags.clients);
  LEEWAY_ASSIGN_OR_RETURN(std::vector<PlannedEpoch> epochs, LoadEpochs(flags.epochs_from, config));
  LEEWAY_RETURN_IF_ERROR(Annotate(CheckClients(config, config.cohort().clients()), flags.config));
  LEEWAY_ASSIGN_OR_RETURN(ModelPtr initial, LoadInitialModel(flags.config, config));
  LEEWAY_ASSIGN_OR_RETURN(ModelPtr baseline, LoadBaseline(flags.config, config));
  std::string chain_key;
  if (!flags.chain_key.empty()) {
    LEEWAY_ASSIGN_OR_RETURN(chain_key, ReadSecretFile(flags.chain_key));
  }
  const std::unique_ptr<Metrics> metrics = flags.dashboard.empty() ? nullptr : Metrics::Make();
  LEEWAY_ASSIGN_OR_RETURN(
      std::unique_ptr<Engine> engine,
      Engine::Open({config, flags.state, &log, metrics.get(), std::move(initial),
                    std::move(baseline), chain_key, std::move(epochs)}));
  LEEWAY_ASSIGN_OR_RETURN(const std::unique_ptr<Listener> listener,
                          OpenListener(flags.listen, *engine, *gate, log));
  gate->Tell(listener.get());
  if (!flags.tls.empty()) credentials->SetAuthMetadataProcessor(gate->StreamCount());
  const std::unique_ptr<grpc::Service> service = MakeService(*engine, std::move(gate));
  const std::unique_ptr<grpc::CallbackGenericService> others = MakeUnknownMethods(*engine);
  const std::unique_ptr<grpc::Server> server =
      StartServer(*listener, credentials, *service, *others);
  if (server == nullptr) return absl::InternalError("gRPC could not start its server");
  // A client may have joined before we fail below; its stream would be waited for.
  const absl::Cleanup hang_up = [&listener, &server] {
    listener->Stop();
    server->Shutdown(std::chrono::system_clock::now());
  };
  const std::string& address = listener->address();
  std::unique_ptr<Dashboard> dashboard;
  std::function<void()> unsubscribe = [] {};
  if (metrics) {
    LEEWAY_ASSIGN_OR_RETURN(dashboard, StartDashboard(flags, config, *engine, *metrics));
    LEEWAY_ASSIGN_OR_RETURN(unsubscribe,
                            engine->Subscribe([&feed = dashboard->feed()] { feed.Changed(); }));
  }
  LEEWAY_RETURN_IF_ERROR(WriteAddress(
      flags.address_file, dashboard ? absl::StrCat(address, "\n", dashboard->url()) : address));
  LogListening(flags, config, *listener, dashboard.get(), log);
  OnTermination(flags.exit_with_stdin, [&engine] { engine->Stop(); });
  const absl::Status outcome = engine->Run();
  unsubscribe();
  if (dashboard) dashboard->Stop();
  listener->Stop();
  // Streams end by themselves once told that the run is over; a server that
  // is told to stop does not wait for those that only watch.
  const absl::Duration grace = absl::Seconds(absl::IsCancelled(outcome) ? 1 : 10);
  server->Shutdown(absl::ToChronoTime(absl::Now() + grace));
  return outcome;
}

int Main(int argc, char** argv) {
  TrustLockOrder();
  Flags flags;
  CLI::App app("Leeway's server: one run of federated training, with its drift measured.",
               "leeway-server");
  Declare(app, flags);
  if (const std::optional<int> code = ParseOrExit(app, argc, argv)) return *code;
  // Two heaps, not one for each of a dozen threads: every heap keeps what it once needed, and which
  // threads get to read the most is chance.
  mallopt(M_ARENA_MAX, 2);
  // Keep freed read buffers: giving pages back and getting them anew for every message
  // takes longer.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 2 << 20);
  // What a run leaves behind is for its owner: models and records may give away data.
  umask(077);
  BlockTerminationSignals();
  // A reader of the log that goes away does not end the run.
  std::signal(SIGPIPE, SIG_IGN);
  absl::Status outcome;
  {
    Log log(STDOUT_FILENO, flags.log.Format(), flags.log.Level());
    grpc_log = &log;
    gpr_set_log_function(LogGrpc);
    outcome = Serve(flags, log);
    grpc_log = nullptr;
  }
  if (outcome.ok()) return 0;
  absl::FPrintF(stderr, "leeway-server: %s\n", std::string(outcome.message()));
  if (absl::IsCancelled(outcome)) return 3;
  return absl::IsInvalidArgument(outcome) ? 2 : 1;
}

}  // namespace
}  // namespace leeway

int main(int argc, char** argv) { return leeway::Main(argc, argv); }
