// Every class of refusal of docs/reliability.md, against a real engine behind a real
// gRPC server with mutual TLS: the status is the documented one, the model and the
// accepted set are those of a run without the attack, and the honest client
// succeeds right after.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>

#include "common/credentials.h"
#include "common/digest.h"
#include "common/wire.h"
#include "proto/federation.grpc.pb.h"
#include "tests/named_report.h"
#include "tests/server/answer.h"
#include "tests/server/tls_federation.h"

namespace leeway {
namespace {

using absl::StatusCode;

// One class of refusal: what is sent in the name of client a, and what comes back.
struct Attack {
  const char* name;
  StatusCode code;
  bool costs_place;  // a's report of this attempt is refused for good
  std::function<absl::Status(TlsFederation&, const v1::Order&)> run;
};

absl::Status JoinStatus(v1::Federation::Stub& stub, const v1::JoinRequest& request) {
  grpc::ClientContext context;
  auto orders = stub.Join(&context, request);
  v1::Order order;
  while (orders->Read(&order)) {
  }
  return FromGrpc(orders->Finish());
}

absl::Status Handshake(TlsFederation& f, const grpc::SslCredentialsOptions& options,
                       const std::string& address) {
  const auto stub =
      v1::Federation::NewStub(grpc::CreateChannel(address, grpc::SslCredentials(options)));
  static_cast<void>(f);
  return JoinStatus(*stub, TlsFederation::Hosting("a", 5));
}

absl::Status Unknown(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const grpc::Slice slice("x");
  const auto call = stub.PrepareUnaryCall(&context, "/leeway.v1.Federation/Nope",
                                          grpc::ByteBuffer(&slice, 1), &queue);
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->StartCall();
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return FromGrpc(status);
}

// The sum of one client's report, whose loss is 1 and the square of it 0.
v1::Part ImpossibleSum(const v1::Order& order, const std::string& client) {
  const TaskSums sums(order.task(), 2);
  Tally tally(sums.shape());
  EXPECT_TRUE(NamedReport<>(sums).Set(kLoss, 1).AddTo(tally).ok());
  v1::Part part = Answer(order, client);
  part.set_data(std::string(reinterpret_cast<const char*>(tally.flat().data()),
                            tally.flat().size() * sizeof(int64_t)));
  v1::ReportHeader& header = *part.mutable_header();
  header.set_encoding(v1::TALLY);
  header.clear_numbers();
  header.clear_weight();
  header.set_payload_size(part.data().size());
  header.set_payload_hash(Xxh3(part.data()));
  return part;
}

std::vector<Attack> Attacks(const std::string& pki, const std::string& address) {
  const auto values = [](double x, double y) {
    return [x, y](TlsFederation& f, const v1::Order& order) {
      return f.Submit("a", Answer(order, "a", {x, y}));
    };
  };
  const auto header = [](std::function<void(v1::ReportHeader&)> change) {
    return [change](TlsFederation& f, const v1::Order& order) {
      v1::Part part = Answer(order, "a", Honest("a", order.round()));
      change(*part.mutable_header());
      return f.Submit("a", part);
    };
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return {
      {"nan", StatusCode::kInvalidArgument, true, values(0.5, std::nan(""))},
      {"infinite", StatusCode::kInvalidArgument, true, values(-kInfinity, 0)},
      {"coordinate beyond max_update", StatusCode::kOutOfRange, true, values(0, 257)},
      {"norm beyond the limit", StatusCode::kOutOfRange, true, values(3, 4)},
      {"norm overflows", StatusCode::kOutOfRange, true, values(1e200, 1e200)},
      {"number that is not finite", StatusCode::kInvalidArgument, true,
       header([](auto& h) { h.set_numbers(0, std::nan("")); })},
      {"number out of its range", StatusCode::kInvalidArgument, true,
       header([](auto& h) { h.set_numbers(0, 1e200); })},
      {"numbers that are not asked for", StatusCode::kInvalidArgument, false,
       header([](auto& h) { h.add_numbers(1); })},
      {"sum that no reports add up to", StatusCode::kInvalidArgument, true,
       [](TlsFederation& f, const v1::Order& order) {
         return f.Submit("a", ImpossibleSum(order, "a"));
       }},
      {"no version of the protocol in common", StatusCode::kFailedPrecondition, false,
       [](TlsFederation& f, const v1::Order&) {
         v1::JoinRequest join = TlsFederation::Hosting("a", 5);
         join.set_oldest_version(kOldestProtocol - 1);
         join.set_newest_version(kOldestProtocol - 1);
         return JoinStatus(f.Stub("a"), join);
       }},
      {"wrong length", StatusCode::kInvalidArgument, false,
       header([](auto& h) { h.set_payload_size(24); })},
      {"wrong type", StatusCode::kInvalidArgument, false,
       header([](auto& h) { h.set_encoding(v1::FLOAT32); })},
      {"examples none", StatusCode::kInvalidArgument, false,
       [](TlsFederation& f, const v1::Order&) {
         return JoinStatus(f.Stub("a"), TlsFederation::Hosting("a", 0));
       }},
      {"examples above the enrolled", StatusCode::kPermissionDenied, false,
       [](TlsFederation& f, const v1::Order&) {
         return JoinStatus(f.Stub("a"), TlsFederation::Hosting("a", 11));
       }},
      {"examples other than enrolled", StatusCode::kInvalidArgument, true,
       header([](auto& h) { h.set_weight(7); })},
      {"group of others", StatusCode::kInvalidArgument, true,
       header([](auto& h) { h.set_group(1); })},
      {"host name", StatusCode::kInvalidArgument, false,
       [](TlsFederation& f, const v1::Order&) {
         v1::JoinRequest join = TlsFederation::Hosting("a", 5);
         join.set_host("x\nquarantined b");
         return JoinStatus(f.Stub("a"), join);
       }},
      {"wrong base model", StatusCode::kFailedPrecondition, false,
       header([](auto& h) { h.set_base_sha256(std::string(64, '0')); })},
      {"past round", StatusCode::kFailedPrecondition, false,
       header([](auto& h) { h.set_round(h.round() - 1); })},
      {"future round", StatusCode::kFailedPrecondition, false,
       header([](auto& h) { h.set_round(h.round() + 1); })},
      {"unknown run", StatusCode::kNotFound, false, header([](auto& h) { h.set_run_id("other"); })},
      {"not sampled", StatusCode::kPermissionDenied, false,
       header([](auto& h) { h.set_clients(0, "z"); })},
      {"identity of another", StatusCode::kPermissionDenied, false,
       [](TlsFederation& f, const v1::Order& order) {
         return f.Submit("b", Answer(order, "a", {0, 0}));
       }},
      {"identity of another at join", StatusCode::kPermissionDenied, false,
       [](TlsFederation& f, const v1::Order&) {
         return JoinStatus(f.Stub("b"), TlsFederation::Hosting("a", 5));
       }},
      {"no certificate", StatusCode::kUnavailable, false,
       [pki, address](TlsFederation& f, const v1::Order&) {
         return Handshake(f, {*ReadTextFile(pki + "/ca.crt"), "", ""}, address);
       }},
      {"foreign certificate", StatusCode::kUnavailable, false,
       [pki, address](TlsFederation& f, const v1::Order&) {
         return Handshake(f,
                          {*ReadTextFile(pki + "/ca.crt"), *ReadTextFile(pki + "/foreign/a.key"),
                           *ReadTextFile(pki + "/foreign/a.crt")},
                          address);
       }},
      {"revoked certificate", StatusCode::kUnauthenticated, false,
       [pki, address](TlsFederation& f, const v1::Order&) {
         return Handshake(f,
                          {*ReadTextFile(pki + "/ca.crt"), *ReadTextFile(pki + "/lost.key"),
                           *ReadTextFile(pki + "/lost.crt")},
                          address);
       }},
      {"too many calls", StatusCode::kResourceExhausted, false,
       [](TlsFederation& f, const v1::Order&) {
         std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
         std::vector<std::unique_ptr<grpc::ClientReaderWriter<v1::Part, v1::Receipt>>> streams;
         for (int i = 0; i < Gate::kCallsPerCaller; ++i) {
           contexts.push_back(std::make_unique<grpc::ClientContext>());
           streams.push_back(f.Stub("a").Submit(contexts.back().get()));
         }
         // The Join stream is a call, too: one of these is one too many. None ends
         // before that one was seen.
         while (f.engine().Refusals()["too_many_calls"] == 0) std::this_thread::yield();
         absl::Status refused;
         for (auto& stream : streams) {
           stream->WritesDone();
           const absl::Status status = FromGrpc(stream->Finish());
           if (!status.ok()) refused = status;
         }
         return refused;
       }},
      {"too many connections", StatusCode::kResourceExhausted, false,
       [pki](TlsFederation& f, const v1::Order&) {
         struct Connection {
           std::unique_ptr<v1::Federation::Stub> stub;
           grpc::ClientContext context;
           std::unique_ptr<grpc::ClientReaderWriter<v1::Part, v1::Receipt>> stream;
         };
         // a has one already.
         std::vector<Connection> connections(Gate::kConnectionsPerCaller);
         for (Connection& c : connections) {
           c.stub = v1::Federation::NewStub(f.Channel(FilesOf(pki, "a"), /*own=*/true));
           c.stream = c.stub->Submit(&c.context);
         }
         while (f.engine().Refusals()["too_many_connections"] == 0) std::this_thread::yield();
         absl::Status refused;
         for (Connection& c : connections) {
           c.stream->WritesDone();
           const absl::Status status = FromGrpc(c.stream->Finish());
           if (!status.ok()) refused = status;
         }
         return refused;
       }},
      {"evaluator without a grant to be one", StatusCode::kPermissionDenied, false,
       [](TlsFederation& f, const v1::Order&) {
         v1::JoinRequest join = TlsFederation::Hosting("z", 0);
         join.mutable_clients(0)->set_evaluator(true);
         join.mutable_clients(0)->set_test_examples(5);
         return JoinStatus(f.Stub("a"), join);
       }},
      {"more test examples than the certificate allows", StatusCode::kPermissionDenied, false,
       [](TlsFederation& f, const v1::Order&) {
         v1::JoinRequest join = TlsFederation::Hosting("z", 5);
         join.mutable_clients(0)->set_test_examples(11);
         return JoinStatus(f.Stub("a"), join);
       }},
      {"model for an observer", StatusCode::kPermissionDenied, false,
       [pki](TlsFederation& f, const v1::Order& order) {
         const auto stub = v1::Federation::NewStub(f.Channel(FilesOf(pki, "observer")));
         grpc::ClientContext context;
         v1::FetchRequest request;
         request.set_sha256(order.model().sha256());
         auto chunks = stub->Fetch(&context, request);
         v1::Chunk chunk;
         while (chunks->Read(&chunk)) {
         }
         return FromGrpc(chunks->Finish());
       }},
      {"oversize message", StatusCode::kResourceExhausted, false,
       [](TlsFederation& f, const v1::Order& order) {
         v1::Part part = Answer(order, "a", {0, 0});
         part.set_data(std::string(kMaxMessageBytes, 'x'));
         return f.Submit("a", part);
       }},
      {"compressed message", StatusCode::kUnimplemented, false,
       [](TlsFederation& f, const v1::Order& order) {
         grpc::ClientContext context;
         context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
         auto stream = f.Stub("a").Submit(&context);
         v1::Part part = Answer(order, "a", {0, 0});
         part.set_data(std::string(100'000, 'x'));
         stream->Write(part);
         stream->WritesDone();
         v1::Receipt receipt;
         while (stream->Read(&receipt)) {
         }
         return FromGrpc(stream->Finish());
       }},
      {"slow upload", StatusCode::kDeadlineExceeded, false,
       [](TlsFederation& f, const v1::Order& order) {
         v1::Part part = Answer(order, "a", Honest("a", order.round()));
         part.set_data(part.data().substr(0, 3));  // and nothing more
         return f.Submit(f.Stub("a"), {part}, /*finish=*/false);
       }},
      {"payload before its header", StatusCode::kInvalidArgument, false,
       [](TlsFederation& f, const v1::Order& order) {
         v1::Part part = Answer(order, "a", {0, 0});
         part.clear_header();
         return f.Submit("a", part);
       }},
      {"payload too long", StatusCode::kInvalidArgument, false,
       [](TlsFederation& f, const v1::Order& order) {
         v1::Part part = Answer(order, "a", {0, 0});
         part.mutable_data()->push_back('x');
         return f.Submit("a", part);
       }},
      {"checksum", StatusCode::kDataLoss, false, header([](auto& h) { h.set_payload_hash(1); })},
      {"unknown method", StatusCode::kUnimplemented, false,
       [](TlsFederation& f, const v1::Order&) { return Unknown(f.Channel("a")); }},
  };
}

class RefusalsTest : public ::testing::Test {
 protected:
  static std::string Directory(const std::string& name) {
    return std::filesystem::temp_directory_path() /
           ("leeway-refusals-test-" + std::to_string(getpid()) + "-" + name);
  }
};

TEST_F(RefusalsTest, EachHasItsStatusAndLeavesNoTrace) {
  const int rounds = static_cast<int>(Attacks("", "").size());
  std::vector<std::pair<std::string, std::vector<uint32_t>>> calm;
  {
    TlsFederation f(Directory("calm"), rounds);
    for (int round = 1; round <= rounds; ++round) {
      for (const char* name : {"a", "b"}) {
        ASSERT_TRUE(f.SubmitHonestly(name, f.Next(name)).ok());
      }
    }
    EXPECT_TRUE(f.Next("a").finished());
    calm = f.History();
    EXPECT_TRUE(f.engine().Refusals().empty());
  }
  TlsFederation f(Directory("attacked"), rounds);
  uint64_t counted = 0;
  for (const Attack& attack : Attacks(f.Pki(), f.address())) {
    SCOPED_TRACE(attack.name);
    v1::Order a = f.Next("a");
    v1::Order b = f.Next("b");
    const absl::Status status = attack.run(f, a);
    EXPECT_EQ(status.code(), attack.code) << status;
    EXPECT_FALSE(status.message().empty());
    ASSERT_TRUE(f.SubmitHonestly("b", b).ok());
    if (attack.costs_place) {  // the round is tried again, with both
      a = f.Next("a");
      EXPECT_EQ(a.attempt(), 2u);
      ASSERT_TRUE(f.SubmitHonestly("b", f.Next("b")).ok());
    }
    const absl::Status honest = f.SubmitHonestly("a", a);
    EXPECT_TRUE(honest.ok()) << honest;
    uint64_t now = 0;
    for (const auto& [reason, count] : f.engine().Refusals()) now += count;
    // What does not reach our code is counted by nobody.
    const absl::string_view name = attack.name;
    const bool reaches = attack.code != StatusCode::kUnavailable && name != "compressed message" &&
                         name != "oversize message";
    EXPECT_EQ(now > counted, reaches);
    counted = now;
  }
  EXPECT_TRUE(f.Next("a").finished());
  EXPECT_EQ(f.History(), calm);
}

TEST_F(RefusalsTest, AReplayGetsTheFirstReceiptAndOtherBytesAreRefused) {
  TlsFederation f(Directory("replay"), 1);
  const v1::Order order = f.Next("a");
  const v1::Part report = Answer(order, "a", Honest("a", 1));
  ASSERT_TRUE(f.Submit("a", report).ok());
  bool replay = false;
  EXPECT_TRUE(f.Submit(f.Stub("a"), {report}, true, &replay).ok());
  EXPECT_TRUE(replay);
  EXPECT_EQ(f.Submit("a", Answer(order, "a", {0.5, 0.5})).code(), StatusCode::kAlreadyExists);
  ASSERT_TRUE(f.SubmitHonestly("b", f.Next("b")).ok());
  EXPECT_TRUE(f.Next("a").finished());
  EXPECT_EQ(f.History()[0].second, (std::vector<uint32_t>{0, 1}));
}

TEST_F(RefusalsTest, ARepeatOffenderIsQuarantinedForTheRun) {
  TlsFederation f(Directory("quarantine"), 4, /*minimum=*/1, /*quarantine_after=*/2);
  for (int round = 1; round <= 2; ++round) {
    EXPECT_EQ(f.Submit("a", Answer(f.Next("a"), "a", {std::nan(""), 0})).code(),
              StatusCode::kInvalidArgument);
    ASSERT_TRUE(f.SubmitHonestly("b", f.Next("b")).ok());
  }
  for (int round = 3; round <= 4; ++round) {  // without a
    const v1::Order order = f.Next("b");
    EXPECT_EQ(order.round(), static_cast<uint64_t>(round));
    EXPECT_EQ(f.Submit("a", Answer(order, "a", Honest("a", 3))).code(),
              StatusCode::kPermissionDenied);
    ASSERT_TRUE(f.SubmitHonestly("b", order).ok());
  }
  EXPECT_TRUE(f.Next("b").finished());
  for (const auto& [model, accepted] : f.History()) {
    EXPECT_EQ(accepted, std::vector<uint32_t>{1});
  }
  EXPECT_EQ(f.engine().Refusals()["nan"], 2u);
  EXPECT_EQ(f.engine().Refusals()["not_sampled"], 2u);
  bool recorded = false;
  const auto news = f.engine().Observe(0, 0);
  ASSERT_TRUE(news.ok());
  for (const v1::Event& event : news->events()) {
    recorded |= event.kind() == v1::Event::QUARANTINED && event.subject() == "a" &&
                event.text().find("NaN") != std::string::npos;
  }
  EXPECT_TRUE(recorded);
}

}  // namespace
}  // namespace leeway
