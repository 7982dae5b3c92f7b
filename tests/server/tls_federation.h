// A federation of two honest clients, a and b, and a real engine behind a real gRPC server
// with mutual TLS, for tests of what one of them, or a stranger, should not send.
#ifndef LEEWAY_TESTS_SERVER_TLS_FEDERATION_H_
#define LEEWAY_TESTS_SERVER_TLS_FEDERATION_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "cli/certs.h"
#include "common/credentials.h"
#include "common/digest.h"
#include "common/wire.h"
#include "proto/federation.grpc.pb.h"
#include "records/config.h"
#include "server/engine.h"
#include "server/gate.h"
#include "server/service.h"
#include "tests/server/answer.h"

namespace leeway {

inline constexpr char kTlsConfig[] =
    "model { linear_regression { intercept: false } } cohort { clients: 2 attempts: 3 "
    "minimum_reports: %d } "
    "limits { max_norm: 1 quarantine_after: %d upload_seconds: 0.2 } "
    "phases { train { rounds: %d drift_off: true local { step_size: 0.1 steps: 2 } "
    "} }";

// The values that the honest clients send in a round.
inline std::array<double, 2> Honest(const std::string& client, uint64_t round) {
  const double x = 0.01 * static_cast<double>(round);
  return client == "a" ? std::array<double, 2>{0.5, -x} : std::array<double, 2>{-0.25, x};
}

class TlsFederation {
 public:
  explicit TlsFederation(const std::string& directory, int rounds, int minimum = 2,
                         int quarantine_after = 1000)
      : directory_(directory) {
    std::filesystem::remove_all(directory);
    Must(MakeAuthority(Pki(), "test", 30));
    IssueOptions server;
    server.name = "server";
    server.hosts = {"127.0.0.1"};
    Must(Issue(Pki(), server));
    for (const char* name : {"a", "b", "lost"}) {
      IssueOptions client;
      client.name = name;
      client.grants = {{name, 10}, {"z", 10}};
      Must(Issue(Pki(), client));
    }
    IssueOptions observer;
    observer.name = "observer";
    observer.observer = true;
    Must(Issue(Pki(), observer));
    Must(MakeAuthority(Pki() + "/foreign", "foreign", 30));
    IssueOptions foreign;
    foreign.name = "a";
    foreign.grants = {{"a", 10}};
    Must(Issue(Pki() + "/foreign", foreign));
    EXPECT_TRUE(Revoke(Pki(), "lost").ok());

    Engine::Options options;
    options.config =
        *ParseConfig(absl::StrFormat(kTlsConfig, minimum, quarantine_after, rounds), "test");
    options.state_directory = directory + "/state";
    engine_ = *Engine::Open(options);
    service_ =
        MakeService(*engine_, *Gate::WithCertificates(Pki() + "/ca.crt", Pki() + "/revoked.crl"));
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(
        "127.0.0.1:0", *ServerCredentials(FilesOf(Pki(), "server"), "127.0.0.1:0", false), &port);
    LimitResources(builder);
    builder.RegisterService(service_.get());
    others_ = MakeUnknownMethods(*engine_);
    builder.RegisterCallbackGenericService(others_.get());
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
    loop_ = std::thread([this] { outcome_ = engine_->Run(); });
    for (const char* name : {"a", "b"}) {
      channels_[name] = Channel(FilesOf(Pki(), name));
      stubs_[name] = v1::Federation::NewStub(channels_[name]);
      contexts_[name] = std::make_unique<grpc::ClientContext>();
      orders_[name] = stubs_[name]->Join(contexts_[name].get(), Hosting(name, 5));
    }
  }
  ~TlsFederation() {
    engine_->Stop();
    loop_.join();
    for (auto& [name, context] : contexts_) context->TryCancel();
    server_->Shutdown(std::chrono::system_clock::now());
    engine_.reset();
    std::filesystem::remove_all(directory_);
  }

  std::string Pki() const { return directory_ + "/pki"; }
  // With `own` on a connection that no other channel uses.
  std::shared_ptr<grpc::Channel> Channel(const TlsFiles& files, bool own = false) const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, own);
    return grpc::CreateCustomChannel(address_, *ChannelCredentials(files, address_, false),
                                     arguments);
  }
  std::shared_ptr<grpc::Channel> Channel(const std::string& name) { return channels_[name]; }
  v1::Federation::Stub& Stub(const std::string& name) { return *stubs_[name]; }
  Engine& engine() { return *engine_; }
  const std::string& address() const { return address_; }

  static v1::JoinRequest Hosting(const std::string& name, uint64_t examples) {
    v1::JoinRequest join;
    join.set_oldest_version(kOldestProtocol);
    join.set_newest_version(kNewestProtocol);
    join.set_instance(Xxh3(name));
    join.mutable_schema()->add_feature_shape(2);
    join.add_clients()->set_id(name);
    join.mutable_clients(0)->set_examples(examples);
    return join;
  }

  v1::Order Next(const std::string& name) {
    v1::Order order;
    while (orders_[name]->Read(&order)) {
      if (order.round() != 0 || order.finished()) return order;
    }
    ADD_FAILURE() << "the stream of " << name << " ended";
    return order;
  }

  // Sends parts on one stream; the status it ends with.
  absl::Status Submit(v1::Federation::Stub& stub, const std::vector<v1::Part>& parts,
                      bool finish = true, bool* replay = nullptr) {
    grpc::ClientContext context;
    auto stream = stub.Submit(&context);
    for (const v1::Part& part : parts) {
      if (!stream->Write(part)) break;
    }
    if (finish) stream->WritesDone();
    v1::Receipt receipt;
    while (stream->Read(&receipt)) {
      if (replay != nullptr) *replay = receipt.replay();
    }
    return FromGrpc(stream->Finish());
  }
  absl::Status Submit(const std::string& name, const v1::Part& part) {
    return Submit(*stubs_[name], {part});
  }
  absl::Status SubmitHonestly(const std::string& name, const v1::Order& order) {
    // A caller that has just had too many calls is let in again when they have ended.
    absl::Status status;
    for (int tries = 0; tries < 1000; ++tries) {
      status = Submit(name, Answer(order, name, Honest(name, order.round())));
      if (!absl::IsResourceExhausted(status)) break;
      std::this_thread::yield();
    }
    return status;
  }

  // (model hash, accepted clients) of every round.
  std::vector<std::pair<std::string, std::vector<uint32_t>>> History() {
    const auto store = *Store::OpenReadOnly(directory_ + "/state");
    std::vector<std::pair<std::string, std::vector<uint32_t>>> history;
    const std::vector<v1::RoundRecord> rounds = *store->RoundsAfter(0);
    for (const v1::RoundRecord& record : rounds) {
      history.emplace_back(record.model_sha256(), *store->Accepted(record.round()));
    }
    return history;
  }

 private:
  static void Must(const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; }

  const std::string directory_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::CallbackGenericService> others_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::thread loop_;
  absl::Status outcome_;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_;
  std::map<std::string, std::unique_ptr<v1::Federation::Stub>> stubs_;
  std::map<std::string, std::unique_ptr<grpc::ClientContext>> contexts_;
  std::map<std::string, std::unique_ptr<grpc::ClientReader<v1::Order>>> orders_;
};

}  // namespace leeway

#endif  // LEEWAY_TESTS_SERVER_TLS_FEDERATION_H_
