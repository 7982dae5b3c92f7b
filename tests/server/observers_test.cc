#include "server/observers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/digest.h"

namespace leeway {
namespace {

class ObserversTest : public ::testing::Test {
 protected:
  ObserversTest() {
    std::string pattern = ::testing::TempDir() + "/observers_test.XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~ObserversTest() override { std::filesystem::remove_all(directory_); }

  // A record of about 1 KB.
  static v1::RoundRecord Record(uint64_t round) {
    v1::RoundRecord record;
    record.set_round(round);
    record.set_base_sha256(std::string(1000, 'x'));
    return record;
  }
  static v1::Event Event(uint64_t sequence) {
    v1::Event event;
    event.set_sequence(sequence);
    event.set_kind(v1::Event::JOINED);
    event.set_text(std::string(500, 'y'));
    return event;
  }

  // A store with so many rounds and events, and the observers of a server that goes on
  // from there.
  void Restart(uint64_t rounds, uint64_t events) {
    auto store = *Store::Open(directory_);
    v1::RunConfig config;
    config.set_durability(v1::RELAXED);
    ASSERT_TRUE(store->Begin("run", config, {}, {{"a", 1, 0}}, {}, {}).ok());
    for (uint64_t i = 1; i <= events; ++i) store->AddEvent(Event(i));
    for (uint64_t i = 1; i <= rounds; ++i) {
      RoundCommit commit;
      commit.record = Record(i);
      ASSERT_TRUE(store->Commit(std::move(commit)).ok());
    }
    ASSERT_TRUE(store->Flush().ok());
    observers_.SetStore(*Store::OpenReadOnly(directory_), rounds, events);
  }

  struct Seen {
    std::vector<uint64_t> rounds;
    std::vector<uint64_t> events;
    int pieces = 0;
  };
  // All that an observer is told who has seen so much.
  Seen Read(uint64_t round, uint64_t event) {
    Seen seen;
    while (true) {
      const auto piece = observers_.NewsAfter(round, event);
      EXPECT_TRUE(piece.ok()) << piece.status();
      if (!piece.ok()) return seen;
      ++seen.pieces;
      EXPECT_LE(piece->news.ByteSizeLong(), 2 * Observers::kPieceBytes + 4096);
      for (const v1::RoundRecord& record : piece->news.rounds()) {
        seen.rounds.push_back(round = record.round());
      }
      for (const v1::Event& one : piece->news.events()) {
        seen.events.push_back(event = one.sequence());
      }
      if (piece->last) return seen;
    }
  }
  static std::vector<uint64_t> Range(uint64_t first, uint64_t last) {
    std::vector<uint64_t> all;
    for (uint64_t i = first; i <= last; ++i) all.push_back(i);
    return all;
  }

  std::string directory_;
  Observers observers_;
};

TEST_F(ObserversTest, ALongPastComesInBoundedPiecesEachRoundAndEventOnce) {
  Restart(500, 300);
  for (uint64_t i = 501; i <= 3000; ++i) {  // more than memory holds
    observers_.AddRound(Record(i));
    observers_.AddEvent(Event(i - 200));
  }
  // What has left memory is in the store of a real run; here it is not.
  const Seen recent = Read(2500, 2500);
  EXPECT_EQ(recent.rounds, Range(2501, 3000));
  EXPECT_EQ(recent.events, Range(2501, 2800));
  EXPECT_GT(recent.pieces, 5);
}

TEST_F(ObserversTest, WhoIsFurtherBehindThanMemoryReadsTheStore) {
  Restart(500, 300);
  for (uint64_t i = 501; i <= 600; ++i) observers_.AddRound(Record(i));
  for (uint64_t i = 301; i <= 310; ++i) observers_.AddEvent(Event(i));
  const Seen all = Read(0, 0);
  EXPECT_EQ(all.rounds, Range(1, 600));
  EXPECT_EQ(all.events, Range(1, 310));
  EXPECT_GT(all.pieces, 5);
  EXPECT_EQ(Read(600, 310).pieces, 1);
  EXPECT_EQ(Read(599, 310).rounds, Range(600, 600));
  EXPECT_EQ(Read(uint64_t{1} << 60, uint64_t{1} << 60).pieces, 1);
}

TEST_F(ObserversTest, WithoutAStoreMemoryIsAllThereIs) {
  for (uint64_t i = 1; i <= 20; ++i) observers_.AddEvent(Event(i));
  EXPECT_EQ(Read(0, 0).events, Range(1, 20));
}

TEST_F(ObserversTest, OneEntryLargerThanAPieceComesAlone) {
  v1::RoundRecord large = Record(1);
  large.set_base_sha256(std::string(3 * Observers::kPieceBytes, 'x'));
  observers_.AddRound(large);
  observers_.AddRound(Record(2));
  const auto piece = observers_.NewsAfter(0, 0);
  ASSERT_TRUE(piece.ok());
  EXPECT_EQ(piece->news.rounds_size(), 1);
  EXPECT_FALSE(piece->last);
}

TEST_F(ObserversTest, OnlySoManyMayWatch) {
  int notified = 0;
  std::vector<std::function<void()>> ends;
  for (size_t i = 0; i < Observers::kMostObservers; ++i) {
    auto end = observers_.Subscribe([&notified] { ++notified; });
    ASSERT_TRUE(end.ok());
    ends.push_back(*std::move(end));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(observers_.Subscribe([] {}).status()));
  observers_.Notify();
  EXPECT_EQ(notified, static_cast<int>(Observers::kMostObservers));
  ends.front()();
  EXPECT_TRUE(observers_.Subscribe([] {}).ok());
}

}  // namespace
}  // namespace leeway
