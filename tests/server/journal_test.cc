#include "server/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/digest.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

const absl::Time kStart = absl::FromUnixSeconds(1000);

class JournalTest : public ::testing::Test {
 protected:
  JournalTest() {
    std::string pattern = ::testing::TempDir() + "/journal_test.XXXXXX";
    directory_ = mkdtemp(pattern.data());
    config_.mutable_cohort()->set_clients(2);
  }
  ~JournalTest() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<Journal> Open() {
    observers_ = std::make_unique<Observers>();
    auto journal = Journal::Open({config_, directory_, nullptr, nullptr}, observers_.get());
    EXPECT_TRUE(journal.ok()) << journal.status();
    return *std::move(journal);
  }
  std::unique_ptr<Journal> Begun() {
    std::unique_ptr<Journal> journal = Open();
    EXPECT_TRUE(journal->Begin({}, {{"a", 5, 0}, {"b", 5, 0}}, Initial(), {}).ok());
    return journal;
  }
  static ModelPtr Initial() {
    return std::make_shared<Model>(Model{Sha256Hex("initial"), Buffer(std::string("initial"))});
  }
  static RoundCommit Round(uint64_t round, size_t numbers = 0) {
    RoundCommit commit;
    commit.record.set_round(round);
    commit.script.set_round(round);
    commit.script.mutable_optimizer()->Resize(static_cast<int>(numbers), 0.5);
    if (numbers > 0) commit.script.set_optimizer(0, static_cast<double>(round));
    return commit;
  }
  size_t RoundsSeen() const { return observers_->NewsAfter(0, 0)->news.rounds_size(); }
  size_t StateFiles() const {
    size_t files = 0;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(directory_ + "/optimizer", error))
      files += entry.is_regular_file();
    return files;
  }

  std::string directory_;
  v1::RunConfig config_;
  std::unique_ptr<Observers> observers_;
};

TEST_F(JournalTest, ARunThatHasNotBegunHasNothingToLoad) {
  const auto journal = Open();
  const auto saved = journal->Load();
  ASSERT_TRUE(saved.ok());
  EXPECT_FALSE(saved->has_value());
  EXPECT_EQ(journal->committed(), 0u);
}

TEST_F(JournalTest, ARestartFindsTheRunItsClientsStandingsAndTheNextEventsNumber) {
  auto journal = Begun();
  journal->AddEvent(v1::Event::REFUSED, "b", "NaN");
  RoundCommit commit = Round(1);
  v1::ClientStanding& standing = *commit.standings.add_clients();
  standing.set_client(1);
  standing.set_refused(3);
  standing.set_quarantined(true);
  ASSERT_TRUE(journal->Commit(std::move(commit)).ok());
  const std::string run_id = journal->run_id();
  journal.reset();

  journal = Open();
  const auto saved = journal->Load();
  ASSERT_TRUE(saved.ok()) << saved.status();
  ASSERT_TRUE(saved->has_value());
  EXPECT_EQ(journal->run_id(), run_id);
  EXPECT_EQ(journal->committed(), 1u);
  EXPECT_EQ((*saved)->roster.size(), 2u);
  ASSERT_EQ((*saved)->standings.clients_size(), 1);
  EXPECT_EQ((*saved)->standings.clients(0).refused(), 3u);
  EXPECT_TRUE((*saved)->standings.clients(0).quarantined());
  journal->AddEvent(v1::Event::JOINED, "x", "again");
  EXPECT_EQ(observers_->NewsAfter(1, 1)->news.events(0).sequence(), 2u);
}

TEST_F(JournalTest, AnotherConfigurationIsRefused) {
  Begun();
  config_.set_seed(9);
  Observers observers;
  const auto journal = Journal::Open({config_, directory_, nullptr, nullptr}, &observers);
  EXPECT_TRUE(absl::IsFailedPrecondition(journal.status()));
  EXPECT_THAT(std::string(journal.status().message()),
              HasSubstr("another configuration: seed is not set there and 9 here"));
  config_.set_seed(0);
  config_.mutable_cohort()->set_clients(3);
  EXPECT_THAT(
      std::string(
          Journal::Open({config_, directory_, nullptr, nullptr}, &observers).status().message()),
      HasSubstr("cohort.clients is 2 there and 3 here"));
}

TEST_F(JournalTest, NameDeadlineAndLimitsMayChange) {
  Begun();
  config_.set_name("another name");
  config_.mutable_cohort()->set_deadline_seconds(7);
  config_.mutable_limits()->set_max_norm(3);
  Open();
  const auto store = *Store::OpenReadOnly(directory_);
  EXPECT_EQ(store->Config()->name(), "another name");
  EXPECT_EQ(store->Config()->cohort().deadline_seconds(), 7);
  EXPECT_TRUE(store->CheckWhole().ok());
}

TEST_F(JournalTest, AClientThatFailsWithoutEndDoesNotFillTheRecords) {
  auto journal = Begun();
  for (int i = 0; i < 10'000; ++i) journal->AddEvent(v1::Event::REFUSED, "a", std::to_string(i));
  for (int i = 0; i < 10'000; ++i) journal->AddRefusedJoin("b", absl::NotFoundError("late"));
  EXPECT_LE(observers_->NewsAfter(0, 0)->news.events_size(), 60);
}

TEST_F(JournalTest, ObserversSeeARoundOnceNoCrashCanTakeItBack) {
  auto journal = Begun();
  ASSERT_TRUE(journal->Commit(Round(1)).ok());
  EXPECT_EQ(RoundsSeen(), 1u);
}

TEST_F(JournalTest, RelaxedRoundsAreWrittenAndToldInBatches) {
  config_.set_durability(v1::RELAXED);
  auto journal = Begun();
  int notified = 0;
  const auto end = observers_->Subscribe([&notified] { ++notified; });
  ASSERT_TRUE(journal->Commit(Round(1)).ok());
  EXPECT_EQ(journal->committed(), 1u);  // it counts, and is not written
  EXPECT_EQ((*Store::OpenReadOnly(directory_))->LastRound().value(), 0u);
  ASSERT_TRUE(journal->CatchUp(kStart).ok());  // the first batch ends at once
  EXPECT_EQ(RoundsSeen(), 1u);
  EXPECT_EQ(notified, 1);
  ASSERT_TRUE(journal->Commit(Round(2)).ok());
  const auto next = journal->CatchUp(kStart + absl::Milliseconds(1));
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(*next, kStart + absl::Milliseconds(50));
  EXPECT_EQ(RoundsSeen(), 1u);
  EXPECT_EQ((*Store::OpenReadOnly(directory_))->LastRound().value(), 1u);
  EXPECT_EQ(*journal->CatchUp(*next), absl::InfiniteFuture());
  EXPECT_EQ(RoundsSeen(), 2u);
  EXPECT_EQ(notified, 2);
  EXPECT_EQ((*Store::OpenReadOnly(directory_))->LastRound().value(), 2u);
}

TEST_F(JournalTest, EventsAreToldWithoutWaitingForARound) {
  auto journal = Begun();
  int notified = 0;
  const auto end = observers_->Subscribe([&notified] { ++notified; });
  journal->AddEvent(v1::Event::RETRY, "", "again");
  EXPECT_TRUE(journal->has_news());
  ASSERT_TRUE(journal->CatchUp(kStart).ok());
  EXPECT_EQ(notified, 1);
  EXPECT_FALSE(journal->has_news());
  EXPECT_EQ(observers_->NewsAfter(0, 0)->news.events(0).text(), "again");
}

TEST_F(JournalTest, AProcessThatComesAndGoesWithoutEndDoesNotFillTheLog) {
  auto journal = Begun();
  for (int i = 0; i < 1000; ++i) journal->AddPresence(v1::Event::JOINED, "x", "came");
  journal->AddEvent(v1::Event::RETRY, "", "again");
  const v1::Observation news = observers_->NewsAfter(0, 0)->news;
  EXPECT_EQ(news.events_size(), 242);  // 200, 20 per client, the one that says so, and ours
  EXPECT_THAT(news.events(240).text(), HasSubstr("not recorded"));
}

class LargeStateTest : public JournalTest, public ::testing::WithParamInterface<v1::Durability> {
 protected:
  static constexpr size_t kMany = 200'000;
};

TEST_P(LargeStateTest, IsOneFileThatARestartChecks) {
  config_.set_durability(GetParam());
  auto journal = Begun();
  for (uint64_t round = 1; round <= 4; ++round) {
    ASSERT_TRUE(journal->Commit(Round(round, kMany)).ok());
  }
  ASSERT_TRUE(journal->Flush().ok());
  EXPECT_EQ(StateFiles(), 1u);
  journal.reset();
  std::ofstream(directory_ + "/optimizer/leftover.f64") << "of a crash";
  journal = Open();
  EXPECT_EQ(StateFiles(), 1u);
  const auto saved = journal->Load();
  ASSERT_TRUE(saved.ok()) << saved.status();
  ASSERT_EQ((*saved)->script.optimizer_size(), static_cast<int>(kMany));
  EXPECT_EQ((*saved)->script.optimizer(0), 4);
  EXPECT_EQ((*saved)->script.optimizer(kMany - 1), 0.5);
  // A small one needs no file.
  ASSERT_TRUE(journal->Commit(Round(5, 3)).ok());
  ASSERT_TRUE(journal->Flush().ok());
  EXPECT_EQ(StateFiles(), 0u);
  journal.reset();
  EXPECT_EQ((*Open()->Load())->script.optimizer_size(), 3);
}

TEST_P(LargeStateTest, ADamagedFileIsNamed) {
  config_.set_durability(GetParam());
  auto journal = Begun();
  ASSERT_TRUE(journal->Commit(Round(1, kMany)).ok());
  ASSERT_TRUE(journal->Flush().ok());
  journal.reset();
  for (const auto& entry : std::filesystem::directory_iterator(directory_ + "/optimizer")) {
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(77);
    file.put('!');
  }
  const auto saved = Open()->Load();
  EXPECT_TRUE(absl::IsDataLoss(saved.status())) << saved.status();
  EXPECT_THAT(std::string(saved.status().message()), HasSubstr(".f64"));
}

INSTANTIATE_TEST_SUITE_P(Durability, LargeStateTest, ::testing::Values(v1::FULL, v1::RELAXED));

}  // namespace
}  // namespace leeway
