// The engine without a network: who is blamed for a failed round, and how a run that has failed
// or found too few clients ends and goes on.
#include "server/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <filesystem>
#include <thread>

#include "common/wire.h"
#include "records/config.h"
#include "tests/server/answer.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The orders that a process gets.
class Process : public OrderSink {
 public:
  void Send(const grpc::Slice& common, const v1::Order& own) override {
    v1::Order order;
    order.ParseFromArray(common.begin(), static_cast<int>(common.size()));
    order.MergeFrom(own);
    if (order.round() == 0 && !order.finished()) return;
    MutexLock lock(&mu_);
    orders_.push_back(order);
    changed_.SignalAll();
  }
  void Close(const absl::Status&) override {}
  v1::Order Next() {
    MutexLock lock(&mu_);
    while (orders_.empty()) changed_.Wait(&mu_);
    v1::Order order = orders_.front();
    orders_.pop_front();
    return order;
  }

 private:
  Mutex mu_;
  CondVar changed_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::Order> orders_ ABSL_GUARDED_BY(mu_);
};

class EngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() /
                 ("leeway-engine-test-" + std::to_string(getpid()) + "-" +
                  ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(directory_);
  }
  void TearDown() override {
    Stop();
    std::filesystem::remove_all(directory_);
  }

  void Start(const std::string& config) {
    Engine::Options options;
    options.config = *ParseConfig(
        "model { linear_regression { intercept: false } } "
        "phases { train { rounds: 2 drift_off: true loss_off: true local { step_size: 0.1 steps: 2 "
        "} } } " +
            config,
        "test");
    options.state_directory = directory_;
    auto engine = Engine::Open(options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    loop_ = std::thread([this] { outcome_ = engine_->Run(); });
  }
  void Stop() {
    if (!engine_) return;
    engine_->Stop();
    loop_.join();
    engine_.reset();
  }
  absl::Status Outcome() {
    loop_.join();
    loop_ = std::thread([] {});
    return outcome_;
  }

  std::shared_ptr<Process> Join(const std::vector<std::string>& clients) {
    v1::JoinRequest join;
    join.set_oldest_version(kOldestProtocol);
    join.set_newest_version(kNewestProtocol);
    join.set_instance(++instances_);
    join.mutable_schema()->add_feature_shape(2);
    for (const std::string& name : clients) {
      join.add_clients()->set_id(name);
      join.mutable_clients()->rbegin()->set_examples(5);
    }
    auto process = std::make_shared<Process>();
    const auto session = engine_->Join(join, process);
    EXPECT_TRUE(session.ok()) << session.status();
    last_session_ = session.ok() ? *session : 0;
    return process;
  }
  absl::Status Submit(const v1::Part& part) {
    return engine_
        ->Submit(part.header(),
                 {reinterpret_cast<const std::byte*>(part.data().data()), part.data().size()})
        .status();
  }
  absl::Status Report(const v1::Order& order, const std::string& client) {
    return Submit(Answer(order, client));
  }
  absl::Status Bad(const v1::Order& order, const std::string& client) {
    return Submit(Answer(order, client, {std::nan(""), 0}));
  }
  absl::Status Failure(const v1::Order& order, const std::string& client) {
    v1::ReportHeader header;
    header.set_run_id(order.run_id());
    header.set_round(order.round());
    header.set_attempt(order.attempt());
    header.set_base_sha256(order.model().sha256());
    header.set_encoding(v1::FLOAT64);
    v1::ClientFailure& failure = *header.add_failures();
    failure.set_client(client);
    failure.set_message("the disk is full");
    return engine_->Submit(header, {}).status();
  }
  // A sum of these clients that does not say how many they are.
  absl::Status BadSum(const v1::Order& order, const std::vector<std::string>& clients) {
    const TaskSums sums(order.task(), 2);
    const Tally tally(sums.shape());
    v1::Part part;
    v1::ReportHeader& header = *part.mutable_header();
    header.set_run_id(order.run_id());
    header.set_round(order.round());
    header.set_attempt(order.attempt());
    header.set_base_sha256(order.model().sha256());
    header.set_encoding(v1::TALLY);
    for (const std::string& client : clients) header.add_clients(client);
    part.set_data(reinterpret_cast<const char*>(tally.flat().data()),
                  tally.flat().size() * sizeof(int64_t));
    header.set_payload_size(part.data().size());
    header.set_payload_hash(Xxh3(part.data()));
    return Submit(part);
  }
  std::vector<std::string> Subjects(v1::Event::Kind kind) {
    std::vector<std::string> subjects;
    const auto news = engine_->Observe(0, 0);
    EXPECT_TRUE(news.ok());
    for (const v1::Event& event : news->events()) {
      if (event.kind() == kind) subjects.push_back(event.subject());
    }
    return subjects;
  }
  std::string TextOf(v1::Event::Kind kind) {
    const auto news = engine_->Observe(0, 0);
    for (const v1::Event& event : news->events()) {
      if (event.kind() == kind) return event.text();
    }
    return "";
  }

  std::filesystem::path directory_;
  std::unique_ptr<Engine> engine_;
  std::thread loop_;
  absl::Status outcome_;
  uint64_t instances_ = 0;
  SessionId last_session_ = 0;
};

TEST_F(EngineTest, WhoCannotDoItsTaskIsQuarantinedBeforeTheAttemptsRunOut) {
  Start("cohort { clients: 3 attempts: 3 } limits { quarantine_after: 1000 }");
  const auto a = Join({"a"}), b = Join({"b"}), c = Join({"c"});
  for (uint32_t attempt = 1; attempt <= 2; ++attempt) {
    const v1::Order order = a->Next();
    EXPECT_EQ(order.attempt(), attempt);
    ASSERT_TRUE(Report(order, "a").ok());
    ASSERT_TRUE(Report(b->Next(), "b").ok());
    ASSERT_TRUE(Failure(c->Next(), "c").ok());
  }
  for (uint64_t round = 1; round <= 2; ++round) {  // the last attempt, and the rest
    const v1::Order order = a->Next();
    EXPECT_EQ(order.round(), round);
    ASSERT_TRUE(Report(order, "a").ok());
    ASSERT_TRUE(Report(b->Next(), "b").ok());
  }
  EXPECT_TRUE(Outcome().ok()) << outcome_;
  EXPECT_THAT(Subjects(v1::Event::QUARANTINED), ElementsAre("c"));
  EXPECT_THAT(TextOf(v1::Event::QUARANTINED), HasSubstr("the disk is full"));
}

TEST_F(EngineTest, AFailureNowAndThenIsForgiven) {
  Start(
      "cohort { clients: 2 minimum_reports: 1 } limits { quarantine_after: 2 } "
      "phases { train { rounds: 4 drift_off: true loss_off: true local { step_size: 0.1 steps: 2 } "
      "} }");
  const auto a = Join({"a"}), b = Join({"b"});
  for (int round = 1; round <= 6; ++round) {
    ASSERT_TRUE(Report(a->Next(), "a").ok());
    const v1::Order order = b->Next();
    ASSERT_TRUE((round % 2 == 0 ? Report(order, "b") : Failure(order, "b")).ok());
  }
  EXPECT_TRUE(Outcome().ok()) << outcome_;
  EXPECT_THAT(Subjects(v1::Event::QUARANTINED), IsEmpty());
}

TEST_F(EngineTest, ARoundRecordsTheIdleShareAndAReplayMayHaveTakenAnotherTime) {
  Start("cohort { clients: 2 }");
  const auto a = Join({"a"}), b = Join({"b"});
  const auto timed = [](v1::Part part, double busy, double idle) {
    part.mutable_header()->set_busy_seconds(busy);
    part.mutable_header()->set_idle_seconds(idle);
    return part;
  };
  const v1::Order first = a->Next();
  ASSERT_TRUE(Submit(timed(Answer(first, "a"), 3, 1)).ok());
  // A restarted client's: counted once.
  EXPECT_TRUE(Submit(timed(Answer(first, "a"), 5, 0)).ok());
  ASSERT_TRUE(Submit(timed(Answer(b->Next(), "b"), 3, 1)).ok());
  // Nobody is asked to believe this.
  ASSERT_TRUE(Submit(timed(Answer(a->Next(), "a"), std::nan(""), 1)).ok());
  ASSERT_TRUE(Submit(timed(Answer(b->Next(), "b"), 1, -7)).ok());
  EXPECT_TRUE(Outcome().ok()) << outcome_;
  const auto news = engine_->Observe(0, 0);
  ASSERT_TRUE(news.ok());
  ASSERT_EQ(news->rounds_size(), 2);
  EXPECT_EQ(news->rounds(0).idle_share(), 0.25);
  EXPECT_TRUE(std::isnan(news->rounds(1).idle_share()));
}

TEST_F(EngineTest, NobodyIsQuarantinedWhereMostFail) {
  Start("cohort { clients: 3 attempts: 4 } limits { quarantine_after: 1 }");
  const auto a = Join({"a"}), b = Join({"b"}), c = Join({"c"});
  for (int attempt = 1; attempt <= 4; ++attempt) {
    ASSERT_TRUE(Report(a->Next(), "a").ok());
    EXPECT_FALSE(Bad(b->Next(), "b").ok());
    ASSERT_TRUE(Failure(c->Next(), "c").ok());
  }
  EXPECT_FALSE(Outcome().ok());
  EXPECT_THAT(Subjects(v1::Event::QUARANTINED), IsEmpty());
}

TEST_F(EngineTest, ClientsOfARefusedSumAreSetAsideForTheRoundButNotQuarantined) {
  Start("cohort { clients: 4 attempts: 2 } limits { quarantine_after: 1 }");
  const auto host = Join({"a", "b"}), c = Join({"c"}), d = Join({"d"});
  for (uint64_t round = 1; round <= 2; ++round) {
    const v1::Order order = host->Next();
    EXPECT_EQ(order.round(), round);
    EXPECT_FALSE(BadSum(order, {"a", "b"}).ok());
    for (uint32_t attempt = 1; attempt <= 2; ++attempt) {  // the second without a and b
      ASSERT_TRUE(Report(c->Next(), "c").ok());
      ASSERT_TRUE(Report(d->Next(), "d").ok());
    }
  }
  EXPECT_TRUE(Outcome().ok()) << outcome_;
  EXPECT_THAT(Subjects(v1::Event::QUARANTINED), IsEmpty());
}

TEST_F(EngineTest, AFailedRunGoesOnWithTheRoundThatFailed) {
  const std::string config = "cohort { clients: 2 attempts: 1 } ";
  Start(config);
  {
    const auto a = Join({"a"}), b = Join({"b"});
    ASSERT_TRUE(Report(a->Next(), "a").ok());
    ASSERT_TRUE(Report(b->Next(), "b").ok());
    ASSERT_TRUE(Report(a->Next(), "a").ok());
    ASSERT_TRUE(Failure(b->Next(), "b").ok());
    const absl::Status outcome = Outcome();
    EXPECT_THAT(outcome.message(), HasSubstr("round 2 did not get enough reports in 1 attempts"));
    EXPECT_THAT(outcome.message(), HasSubstr("started again, the server goes on"));
    EXPECT_EQ(engine_->progress().state(), v1::FAILED);
  }
  Stop();
  Start(config);
  const auto a = Join({"a"}), b = Join({"b"});
  const v1::Order order = a->Next();
  EXPECT_EQ(order.round(), 2u);
  EXPECT_EQ(order.attempt(), 1u);
  EXPECT_EQ(engine_->progress().state(), v1::RUNNING);
  EXPECT_THAT(TextOf(v1::Event::RESUMED), HasSubstr("the disk is full"));
  ASSERT_TRUE(Report(order, "a").ok());
  ASSERT_TRUE(Report(b->Next(), "b").ok());
  EXPECT_TRUE(Outcome().ok()) << outcome_;
  EXPECT_EQ(engine_->progress().state(), v1::DONE);
}

TEST_F(EngineTest, ARoundNamesWhoIsMissing) {
  Start("cohort { clients: 3 attempts: 1 deadline_seconds: 3 }");
  const auto a = Join({"a"}), b = Join({"b"}), c = Join({"c"});
  c->Next();  // the run has begun
  engine_->Leave(last_session_);
  ASSERT_TRUE(Report(a->Next(), "a").ok());
  ASSERT_TRUE(Report(b->Next(), "b").ok());
  EXPECT_THAT(Outcome().message(), HasSubstr("; missing: c."));
  EXPECT_THAT(TextOf(v1::Event::RETRY), HasSubstr("2 of 3 reports; missing: c;"));
}

TEST_F(EngineTest, GatheringEndsAndSaysHowManyAreMissing) {
  Start("cohort { clients: 5 gather_seconds: 0.2 }");
  Join({"b", "a"});
  const absl::Status outcome = Outcome();
  EXPECT_TRUE(absl::IsDeadlineExceeded(outcome)) << outcome;
  EXPECT_THAT(outcome.message(), HasSubstr("3 of 5 clients are missing after 0.2 s"));
  EXPECT_THAT(outcome.message(), HasSubstr("joined so far: a, b"));
}

// Positions of the clients that an order asks, by name.
std::vector<std::string> Asked(const v1::Order& order, const std::vector<std::string>& hosted) {
  std::vector<std::string> names;
  for (const uint32_t client : order.clients()) names.push_back(hosted[client]);
  return names;
}

TEST_F(EngineTest, AReleaseTestStaysWithTheClientsThatItBeganWith) {
  Start(
      "seed: 5 cohort { clients: 6 attempts: 3 } limits { quarantine_after: 1 } "
      "phases { release { clients: 3 steps: 2 rounds: 1 step_size: 0.1 } }");
  const std::vector<std::string> hosted = {"a", "b", "c", "d", "e", "f"};
  const auto host = Join(hosted);
  const auto report_all = [&](const v1::Order& order) {
    for (const std::string& client : Asked(order, hosted)) ASSERT_TRUE(Report(order, client).ok());
  };
  report_all(host->Next());
  report_all(host->Next());
  // The first attempt at the test's first round is short, so another cohort is drawn.
  v1::Order order = host->Next();
  const std::vector<std::string> first = Asked(order, hosted);
  ASSERT_EQ(first.size(), 3u);
  ASSERT_TRUE(Failure(order, first[0]).ok());
  ASSERT_TRUE(Report(order, first[1]).ok());
  ASSERT_TRUE(Report(order, first[2]).ok());
  order = host->Next();
  ASSERT_EQ(order.attempt(), 2u);
  const std::vector<std::string> second = Asked(order, hosted);
  EXPECT_NE(second, first);
  report_all(order);
  order = host->Next();
  EXPECT_EQ(order.round(), 4u);
  EXPECT_EQ(Asked(order, hosted), second);
  // One of them is quarantined: the others go on.
  ASSERT_TRUE(Failure(order, second[1]).ok());
  ASSERT_TRUE(Report(order, second[0]).ok());
  ASSERT_TRUE(Report(order, second[2]).ok());
  order = host->Next();
  EXPECT_EQ(order.attempt(), 2u);
  EXPECT_THAT(Asked(order, hosted), ElementsAre(second[0], second[2]));
  report_all(order);
  EXPECT_THAT(Asked(host->Next(), hosted), ElementsAre(second[0], second[2]));
}

TEST_F(EngineTest, ARefusalOfAnEarlierRoundIsNotWhyThisOneFailed) {
  Start("cohort { clients: 2 minimum_reports: 1 attempts: 1 deadline_seconds: 3 }");
  const auto a = Join({"a"});
  const SessionId first = last_session_;
  const auto b = Join({"b"});
  ASSERT_TRUE(Report(a->Next(), "a").ok());
  ASSERT_TRUE(Failure(b->Next(), "b").ok());
  a->Next();  // round 2, in which nobody reports
  engine_->Leave(first);
  engine_->Leave(last_session_);
  const absl::Status outcome = Outcome();
  EXPECT_THAT(outcome.message(), HasSubstr("round 2 did not get enough reports"));
  EXPECT_THAT(outcome.message(), Not(HasSubstr("Last refusal")));
}

}  // namespace
}  // namespace leeway
