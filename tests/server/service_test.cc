// The service over a real gRPC channel, in one process: every refusal with its
// status, and that an honest report succeeds right after.
#include "server/service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "common/digest.h"
#include "common/wire.h"
#include "proto/federation.grpc.pb.h"
#include "records/config.h"
#include "server/engine.h"
#include "server/gate.h"
#include "tests/server/answer.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

class ServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Start(
        "model { linear_regression { intercept: false } } cohort { clients: 2 } "
        "phases { train { rounds: 2 drift_off: true loss_off: true local { step_size: 0.1 steps: 2 "
        "} } }");
  }

  void Start(const std::string& config) {
    directory_ = std::filesystem::temp_directory_path() /
                 ("leeway-service-test-" + std::to_string(getpid()) + "-" +
                  ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(directory_);
    Engine::Options options;
    options.config = *ParseConfig(config, "test");
    options.state_directory = directory_;
    auto engine = Engine::Open(options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    service_ = MakeService(*engine_);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // a window that does not grow
    stub_ = v1::Federation::NewStub(grpc::CreateCustomChannel(
        "127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials(), arguments));
    loop_ = std::thread([this] { outcome_ = engine_->Run(); });
  }

  void TearDown() override {
    engine_->Stop();
    loop_.join();
    server_->Shutdown(std::chrono::system_clock::now());
    std::filesystem::remove_all(directory_);
  }

  static v1::JoinRequest Hosting(const std::string& name, uint64_t instance) {
    v1::JoinRequest join;
    join.set_oldest_version(kOldestProtocol);
    join.set_newest_version(kNewestProtocol);
    join.set_instance(instance);
    join.mutable_schema()->add_feature_shape(2);
    join.add_clients()->set_id(name);
    join.mutable_clients(0)->set_examples(5);
    return join;
  }

  struct Session {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::Order>> orders;
    v1::Order order;  // the last one with a task
    bool Next() {
      while (orders->Read(&order)) {
        if (order.round() != 0 || order.finished()) return true;
      }
      return false;
    }
  };
  std::unique_ptr<Session> Join(const v1::JoinRequest& request) {
    auto session = std::make_unique<Session>();
    // Ends a test that waits for what never comes.
    session->context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(2));
    session->orders = stub_->Join(&session->context, request);
    return session;
  }

  absl::Status Submit(const v1::Part& part, v1::Receipt* receipt = nullptr) {
    grpc::ClientContext context;
    auto stream = stub_->Submit(&context);
    stream->Write(part);
    stream->WritesDone();
    v1::Receipt got;
    const bool received = stream->Read(&got);
    if (receipt != nullptr) *receipt = got;
    const absl::Status status = FromGrpc(stream->Finish());
    EXPECT_EQ(received, status.ok());
    return status;
  }

  std::filesystem::path directory_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Federation::Stub> stub_;
  std::thread loop_;
  absl::Status outcome_;
};

TEST_F(ServiceTest, AVersionMismatchIsRefusedAtJoin) {
  v1::JoinRequest join = Hosting("a", 1);
  join.set_oldest_version(kNewestProtocol + 1);
  join.set_newest_version(kNewestProtocol + 1);
  auto session = Join(join);
  EXPECT_FALSE(session->Next());
  const grpc::Status status = session->orders->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("install a newer Leeway"));
}

TEST_F(ServiceTest, WhoAsksWhatTheRunIsTakesNoPlace) {
  grpc::ClientContext context;
  v1::Welcome welcome;
  ASSERT_TRUE(stub_->Describe(&context, Hosting("a", 1), &welcome).ok());
  EXPECT_TRUE(welcome.model().has_linear_regression());
  EXPECT_EQ(welcome.protocol_version(), kNewestProtocol);
  EXPECT_EQ(engine_->progress().joined(), 0);
  grpc::ClientContext again;
  v1::JoinRequest nobody = Hosting("a", 1);
  nobody.clear_clients();
  const grpc::Status refused = stub_->Describe(&again, nobody, &welcome);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServiceTest, TwoClientsFinishTheRun) {
  auto a = Join(Hosting("a", 1));
  auto b = Join(Hosting("b", 2));
  for (int round = 1; round <= 2; ++round) {
    ASSERT_TRUE(a->Next());
    ASSERT_TRUE(b->Next());
    EXPECT_EQ(a->order.round(), static_cast<uint64_t>(round));
    EXPECT_EQ(a->order.committed_round(), static_cast<uint64_t>(round - 1));
    EXPECT_TRUE(Submit(Answer(a->order, "a")).ok());
    EXPECT_TRUE(Submit(Answer(b->order, "b")).ok());
  }
  ASSERT_TRUE(a->Next());
  EXPECT_TRUE(a->order.finished());
  grpc::ClientContext context;
  auto observer = stub_->Observe(&context, v1::ObserveRequest());
  v1::Observation observation;
  int rounds = 0;
  while (observer->Read(&observation)) rounds += observation.rounds_size();
  EXPECT_EQ(rounds, 2);
  EXPECT_EQ(observation.progress().state(), v1::DONE);
  EXPECT_TRUE(observer->Finish().ok());
}

// A stream whose process has nothing left to send is not read until the next orders.
class QuietReportsTest : public ServiceTest {
 protected:
  struct Stream {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::Part, v1::Receipt>> calls;
  };
  std::unique_ptr<Stream> Open() {
    auto stream = std::make_unique<Stream>();
    stream->context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(2));
    stream->calls = stub_->Submit(&stream->context);
    return stream;
  }
  static v1::Part Quiet(const v1::Order& order, const std::string& client) {
    v1::Part part = Answer(order, client);
    part.mutable_header()->set_without_receipt(true);
    return part;
  }
};

TEST_F(QuietReportsTest, AProcessMaySendAReportForEachOfItsClientsOnOneStream) {
  v1::JoinRequest join = Hosting("a", 1);
  join.add_clients()->set_id("b");
  join.mutable_clients(1)->set_examples(5);
  auto both = Join(join);
  auto stream = Open();
  for (uint64_t round = 1; round <= 2; ++round) {
    ASSERT_TRUE(both->Next());
    ASSERT_EQ(both->order.round(), round);
    EXPECT_TRUE(stream->calls->Write(Quiet(both->order, "a")));
    EXPECT_TRUE(stream->calls->Write(Quiet(both->order, "b")));
  }
  ASSERT_TRUE(both->Next());
  EXPECT_TRUE(both->order.finished());
  stream->calls->WritesDone();
  EXPECT_TRUE(stream->calls->Finish().ok());  // the end of the run wakes it, too
}

TEST_F(QuietReportsTest, AStreamThatIsGoneIsNotKept) {
  struct Resting : RestingStream {
    void OnOrders() override { ++woken; }
    int woken = 0;
  };
  auto a = Join(Hosting("a", 1));
  auto b = Join(Hosting("b", 2));
  ASSERT_TRUE(a->Next());
  ASSERT_TRUE(b->Next());
  const v1::Part report = Answer(a->order, "a");
  const auto gone = std::make_shared<Resting>();
  const auto kept = std::make_shared<Resting>();
  EXPECT_FALSE(engine_->Rest(report.header(), gone));  // its report is awaited
  ASSERT_TRUE(Submit(report).ok());
  EXPECT_TRUE(engine_->Rest(report.header(), gone));
  EXPECT_TRUE(engine_->Rest(report.header(), kept));
  engine_->EndRest(gone.get());
  EXPECT_EQ(gone.use_count(), 1);
  ASSERT_TRUE(Submit(Answer(b->order, "b")).ok());
  ASSERT_TRUE(a->Next());
  ASSERT_TRUE(b->Next());
  EXPECT_FALSE(engine_->Rest(report.header(), gone));  // the next orders have left
  EXPECT_TRUE(Submit(Answer(b->order, "b")).ok());
  EXPECT_TRUE(Submit(Answer(a->order, "a")).ok());
  ASSERT_TRUE(a->Next());
  EXPECT_TRUE(a->order.finished());
  EXPECT_EQ(gone->woken, 0);
  EXPECT_EQ(kept->woken, 1);
}

TEST_F(QuietReportsTest, AStreamThatHangsUpMeanwhileCostsNothing) {
  auto a = Join(Hosting("a", 1));
  auto b = Join(Hosting("b", 2));
  ASSERT_TRUE(a->Next());
  ASSERT_TRUE(b->Next());
  auto cancelled = Open();
  EXPECT_TRUE(cancelled->calls->Write(Quiet(a->order, "a")));
  while (engine_->Observe(0, 0)->progress().reports() < 1) std::this_thread::yield();
  cancelled->context.TryCancel();
  EXPECT_FALSE(cancelled->calls->Finish().ok());
  auto closed = Open();
  EXPECT_TRUE(closed->calls->Write(Quiet(b->order, "b")));
  closed->calls->WritesDone();
  ASSERT_TRUE(a->Next());
  EXPECT_EQ(a->order.round(), 2u);
  EXPECT_TRUE(closed->calls->Finish().ok());
  ASSERT_TRUE(b->Next());
  EXPECT_TRUE(Submit(Answer(a->order, "a")).ok());
  EXPECT_TRUE(Submit(Answer(b->order, "b")).ok());
  ASSERT_TRUE(a->Next());
  EXPECT_TRUE(a->order.finished());
}

TEST_F(ServiceTest, AClientThatWasAwayAtTheEndHearsOfItWhenItComesBack) {
  auto a = Join(Hosting("a", 1));
  auto b = Join(Hosting("b", 2));
  for (int round = 1; round <= 2; ++round) {
    ASSERT_TRUE(a->Next());
    ASSERT_TRUE(b->Next());
    EXPECT_TRUE(Submit(Answer(a->order, "a")).ok());
    if (round == 2) {
      a->context.TryCancel();
      while (engine_->Clients(1)[0].connected) std::this_thread::yield();
    }
    EXPECT_TRUE(Submit(Answer(b->order, "b")).ok());
  }
  ASSERT_TRUE(b->Next());
  EXPECT_TRUE(b->order.finished());
  a = Join(Hosting("a", 1));
  ASSERT_TRUE(a->Next());
  EXPECT_TRUE(a->order.finished());
  EXPECT_TRUE(a->orders->Finish().ok());
}

TEST_F(ServiceTest, RefusalsHaveTheirStatusAndTheHonestReportStillCounts) {
  auto a = Join(Hosting("a", 1));
  auto b = Join(Hosting("b", 2));
  ASSERT_TRUE(a->Next());
  const v1::Part good = Answer(a->order, "a");
  const auto with = [&good](const std::function<void(v1::ReportHeader&)>& change) {
    v1::Part part = good;
    change(*part.mutable_header());
    return part;
  };
  struct Case {
    const char* name;
    v1::Part part;
    absl::StatusCode code;
  };
  using absl::StatusCode;
  v1::Part long_payload = good;
  long_payload.set_data(long_payload.data() + "x");
  v1::Part headless = good;
  headless.clear_header();
  const Case cases[] = {
      {"unknown run", with([](auto& h) { h.set_run_id("other"); }), StatusCode::kNotFound},
      {"past round", with([](auto& h) { h.set_round(0); }), StatusCode::kFailedPrecondition},
      {"future round", with([](auto& h) { h.set_round(9); }), StatusCode::kFailedPrecondition},
      {"wrong base", with([](auto& h) { h.set_base_sha256("0"); }),
       StatusCode::kFailedPrecondition},
      {"not sampled", with([](auto& h) { h.set_clients(0, "z"); }), StatusCode::kPermissionDenied},
      {"no client", with([](auto& h) { h.clear_clients(); }), StatusCode::kInvalidArgument},
      {"wrong length", with([](auto& h) { h.set_payload_size(8); }), StatusCode::kInvalidArgument},
      {"wrong type", with([](auto& h) { h.set_encoding(v1::FLOAT32); }),
       StatusCode::kInvalidArgument},
      {"broken payload", with([](auto& h) { h.set_payload_hash(1); }), StatusCode::kDataLoss},
      {"too long", long_payload, StatusCode::kInvalidArgument},
      {"no header", headless, StatusCode::kInvalidArgument},
  };
  for (const Case& c : cases) {
    const absl::Status status = Submit(c.part);
    EXPECT_EQ(status.code(), c.code) << c.name << ": " << status;
    EXPECT_FALSE(status.message().empty()) << c.name;
  }
  EXPECT_TRUE(Submit(good).ok());
  v1::Receipt receipt;
  EXPECT_TRUE(Submit(good, &receipt).ok());
  EXPECT_TRUE(receipt.replay());
  EXPECT_EQ(Submit(Answer(a->order, "a", {0.5, 0.5})).code(), StatusCode::kAlreadyExists);
}

TEST_F(ServiceTest, AValueThatCannotCountCostsItsClientThePlace) {
  auto a = Join(Hosting("a", 1));
  auto b = Join(Hosting("b", 2));
  ASSERT_TRUE(a->Next());
  ASSERT_TRUE(b->Next());
  EXPECT_EQ(Submit(Answer(a->order, "a", {0.5, std::nan("")})).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Submit(Answer(b->order, "b")).ok());
  // All sampled clients must report here, so the round is tried again at once.
  ASSERT_TRUE(a->Next());
  EXPECT_EQ(a->order.round(), 1u);
  EXPECT_EQ(a->order.attempt(), 2u);
}

TEST_F(ServiceTest, TheFirstClientDoesNotDecideWhatDataLooksLike) {
  v1::JoinRequest other = Hosting("z", 9);
  other.mutable_schema()->set_feature_shape(0, 7);
  auto stranger = Join(other);
  ASSERT_TRUE(stranger->orders->Read(&stranger->order));  // its welcome
  // Enough clients, of two shapes: of as many, that of the first name stays.
  auto a = Join(Hosting("a", 1));
  EXPECT_FALSE(stranger->Next());
  const grpc::Status refused = stranger->orders->Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(),
              HasSubstr("data of 'z' has the shape {feature_shape: 7}, most of the run's clients "
                        "have {feature_shape: 2}"));
  auto b = Join(Hosting("b", 2));
  EXPECT_TRUE(a->Next());
  EXPECT_EQ(a->order.round(), 1u);
}

TEST_F(ServiceTest, ANewcomerEntersWithTheNextRoundNotInTheOpenOne) {
  auto a = Join(Hosting("a", 1));
  auto b = Join(Hosting("b", 2));
  ASSERT_TRUE(a->Next());
  ASSERT_TRUE(b->Next());
  auto c = Join(Hosting("c", 3));
  ASSERT_TRUE(c->orders->Read(&c->order));  // its welcome: no work
  EXPECT_EQ(c->order.round(), 0u);
  EXPECT_EQ(engine_->progress().waiting(), 1u);
  EXPECT_EQ(Submit(Answer(a->order, "c")).code(), absl::StatusCode::kPermissionDenied);
  ASSERT_TRUE(Submit(Answer(a->order, "a")).ok());
  ASSERT_TRUE(Submit(Answer(b->order, "b")).ok());
  ASSERT_TRUE(c->Next());
  EXPECT_EQ(c->order.round(), 2u);
  EXPECT_EQ(engine_->progress().epoch(), 2u);
  EXPECT_EQ(engine_->progress().population(), 3u);
  EXPECT_EQ(engine_->progress().waiting(), 0u);
}

TEST_F(ServiceTest, WhatClientsWriteIsOneShortLineOfTheLog) {
  for (const std::string& host : {std::string("x\nquarantined c0"), std::string(257, 'x')}) {
    v1::JoinRequest join = Hosting("a", 1);
    join.set_host(host);
    auto session = Join(join);
    EXPECT_FALSE(session->Next());
    const grpc::Status status = session->orders->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("--name"));
  }
  EXPECT_EQ(engine_->Refusals()["host"], 2u);
  auto a = Join(Hosting("a", 1));
  auto b = Join(Hosting("b", 2));
  ASSERT_TRUE(a->Next());
  ASSERT_TRUE(b->Next());
  v1::Part part = Answer(a->order, "a");
  v1::ReportHeader& header = *part.mutable_header();
  header.clear_clients();
  header.set_payload_size(0);
  part.clear_data();
  v1::ClientFailure& failure = *header.add_failures();
  failure.set_client("a");
  failure.set_message("disk\nquarantined b\x1b[2J " + std::string(100'000, 'x'));
  EXPECT_TRUE(Submit(part).ok());
  ASSERT_TRUE(Submit(Answer(b->order, "b")).ok());
  ASSERT_TRUE(a->Next());
  EXPECT_EQ(a->order.attempt(), 2u);
  ASSERT_TRUE(Submit(Answer(a->order, "a")).ok());
  ASSERT_TRUE(b->Next());
  ASSERT_TRUE(Submit(Answer(b->order, "b")).ok());
  ASSERT_TRUE(a->Next());  // the next round: what happened in this one is stored
  EXPECT_EQ(a->order.round(), 2u);
  const auto news = engine_->Observe(0, 0);
  ASSERT_TRUE(news.ok());
  int refused = 0;
  for (const v1::Event& event : news->events()) {
    if (event.kind() != v1::Event::REFUSED || event.subject() != "a") continue;
    ++refused;
    EXPECT_THAT(event.text(), HasSubstr("disk\\x0aquarantined b\\x1b[2J xxx"));
    EXPECT_LT(event.text().size(), 1100u);
  }
  EXPECT_EQ(refused, 1);
}

TEST_F(ServiceTest, ComingAndGoingInALoopDoesNotFillTheLog) {
  for (int i = 0; i < 400; ++i) {
    auto session = Join(Hosting("z", 9));
    ASSERT_TRUE(session->orders->Read(&session->order));
    session->context.TryCancel();
    while (!engine_->Clients(1).empty()) std::this_thread::yield();
  }
  auto a = Join(Hosting("a", 1));
  auto b = Join(Hosting("b", 2));
  ASSERT_TRUE(a->Next());
  ASSERT_TRUE(Submit(Answer(a->order, "a")).ok());
  ASSERT_TRUE(b->Next());
  ASSERT_TRUE(Submit(Answer(b->order, "b")).ok());
  ASSERT_TRUE(a->Next());
  const auto news = engine_->Observe(0, 0);
  ASSERT_TRUE(news.ok());
  EXPECT_EQ(news->events_size(), 241);  // 200 and 20 per client, and the one that says so
  EXPECT_THAT(news->events().rbegin()->text(), HasSubstr("not recorded"));
}

TEST_F(ServiceTest, AnObserverThatHangsUpWhileItIsWrittenToLeavesNothingBehind) {
  std::atomic<bool> done = false;
  std::thread news([&] {  // each is a message to every observer
    for (uint64_t i = 1; !done; ++i) {
      auto session = Join(Hosting("a", i));
      session->orders->Read(&session->order);
      session->context.TryCancel();
      session->orders->Finish();
    }
  });
  v1::Observation observation;
  for (int i = 0; i < 1500; ++i) {
    grpc::ClientContext context;
    auto observer = stub_->Observe(&context, v1::ObserveRequest());
    if (i % 2 == 0) observer->Read(&observation);
    context.TryCancel();
    observer->Finish();
  }
  done = true;
  news.join();
  // All places of this connection are free again, once the server has heard of the ends.
  int free = 0;
  while (free < Gate::kCallsPerCaller) {
    std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
    std::vector<std::unique_ptr<grpc::ClientReader<v1::Observation>>> observers;
    free = 0;
    for (int i = 0; i < Gate::kCallsPerCaller; ++i) {
      contexts.push_back(std::make_unique<grpc::ClientContext>());
      observers.push_back(stub_->Observe(contexts.back().get(), v1::ObserveRequest()));
      if (observers.back()->Read(&observation)) ++free;
    }
    for (size_t i = 0; i < observers.size(); ++i) {
      contexts[i]->TryCancel();
      observers[i]->Finish();
    }
  }
  EXPECT_EQ(free, Gate::kCallsPerCaller);
}

class ManyRoundsTest : public ServiceTest {
 protected:
  void SetUp() override {
    Start(
        "model { linear_regression { intercept: false } } cohort { clients: 2 size: 1 spare: 1 } "
        "phases { train { rounds: 2000 drift_off: true loss_off: true local { step_size: 0.1 "
        "steps: 2 } } }");
  }
};

TEST_F(ManyRoundsTest, AProcessThatDoesNotReadItsOrdersIsLetGo) {
  auto a = Join(Hosting("a", 1));  // takes part in every round, and reads nothing
  auto b = Join(Hosting("b", 2));
  while (engine_->Refusals()["unread_orders"] == 0) {
    ASSERT_TRUE(b->Next());
    ASSERT_FALSE(b->order.finished());
    ASSERT_TRUE(Submit(Answer(b->order, "b")).ok());
  }
  while (engine_->Clients(1)[0].connected) std::this_thread::yield();
  a = Join(Hosting("a", 1));
  ASSERT_TRUE(a->Next());
  bool taken = Submit(Answer(a->order, "a")).ok();
  if (!taken) {  // that order was of the round that b has just ended
    ASSERT_TRUE(a->Next());
    taken = Submit(Answer(a->order, "a")).ok();
  }
  EXPECT_TRUE(taken);
}

TEST_F(ServiceTest, FetchResumesAtAnOffset) {
  auto a = Join(Hosting("a", 1));
  auto b = Join(Hosting("b", 2));
  ASSERT_TRUE(a->Next());
  const std::string& file = a->order.model().inline_();
  v1::FetchRequest request;
  request.set_sha256(a->order.model().sha256());
  request.set_offset(10);
  grpc::ClientContext context;
  auto chunks = stub_->Fetch(&context, request);
  v1::Chunk chunk;
  std::string got;
  while (chunks->Read(&chunk)) got += chunk.data();
  EXPECT_TRUE(chunks->Finish().ok());
  EXPECT_EQ(got, file.substr(10));

  grpc::ClientContext other;
  request.set_sha256("unknown");
  auto none = stub_->Fetch(&other, request);
  EXPECT_FALSE(none->Read(&chunk));
  EXPECT_EQ(none->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace leeway
