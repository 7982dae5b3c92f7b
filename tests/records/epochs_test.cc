#include "records/epochs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<StoredClient> kRoster = {
    {"a", 10, 0}, {"b", 10, 0}, {"test set", 0, 9}, {"c", 10, 0}};

v1::Epoch Epoch(uint32_t number, uint64_t first_round, uint32_t roster, uint32_t population,
                std::initializer_list<uint32_t> returned = {},
                std::initializer_list<uint32_t> left = {}) {
  v1::Epoch epoch;
  epoch.set_number(number);
  epoch.set_first_round(first_round);
  epoch.set_roster(roster);
  epoch.set_population(population);
  epoch.mutable_returned()->Add(returned.begin(), returned.end());
  epoch.mutable_left()->Add(left.begin(), left.end());
  return epoch;
}

TEST(AttendanceTest, FollowsWhoComesLeavesAndReturns) {
  Attendance attendance(kRoster);
  ASSERT_TRUE(attendance.Begin(Epoch(1, 1, 3, 2)).ok());
  EXPECT_THAT(attendance.Clients(), ElementsAre(0, 1));
  EXPECT_TRUE(attendance.present(2));  // the evaluator
  EXPECT_FALSE(attendance.present(3));
  ASSERT_TRUE(attendance.Begin(Epoch(2, 5, 4, 2, {}, {1})).ok());
  EXPECT_THAT(attendance.Clients(), ElementsAre(0, 3));
  EXPECT_THAT(attendance.Away(), ElementsAre(1));
  ASSERT_TRUE(attendance.Begin(Epoch(3, 5, 4, 3, {1}, {})).ok());
  EXPECT_THAT(attendance.Clients(), ElementsAre(0, 1, 3));
  EXPECT_THAT(attendance.Away(), IsEmpty());
}

TEST(AttendanceTest, WhatCannotFollowIsNamed) {
  const std::pair<v1::Epoch, const char*> wrong[] = {
      {Epoch(3, 5, 3, 2), "epoch 3: comes after epoch 1"},
      {Epoch(2, 1, 3, 2), "begins with round 1"},
      {Epoch(2, 5, 2, 2), "2 of 4 clients on its roster"},
      {Epoch(2, 5, 5, 2), "5 of 4 clients on its roster"},
      {Epoch(2, 5, 3, 2, {1}, {}), "client 1 was not away"},
      {Epoch(2, 5, 4, 2, {}, {3}), "client 3 was not present"},
      {Epoch(2, 5, 4, 2), "has 3 clients, but says 2"},
  };
  for (const auto& [epoch, problem] : wrong) {
    Attendance attendance(kRoster);
    ASSERT_TRUE(attendance.Begin(Epoch(1, 2, 3, 2)).ok());
    const absl::Status status = attendance.Begin(epoch);
    EXPECT_TRUE(absl::IsDataLoss(status)) << problem;
    EXPECT_THAT(std::string(status.message()), HasSubstr(problem));
  }
}

TEST(EpochNamesTest, SayWhoCameAndWent) {
  const auto names = NamesOf(
      {Epoch(1, 1, 3, 2), Epoch(2, 51, 4, 2, {}, {1}), Epoch(3, 60, 4, 3, {1}, {})}, kRoster);
  ASSERT_EQ(names.size(), 3u);
  EXPECT_THAT(names[0].entered, ElementsAre("a", "b", "test set"));
  EXPECT_EQ(EpochText(names[1]), "epoch 2 from round 51 on, 2 clients: 'c' enters; 'b' leaves");
  EXPECT_EQ(EpochText(names[2]), "epoch 3 from round 60 on, 3 clients: 'b' returns");
}

TEST(MixedEpochsTest, AreNamedOnlyWhereTheyMatter) {
  std::vector<v1::RoundRecord> records;
  const auto add = [&records](v1::RoundKind kind, uint32_t epoch, uint32_t population) {
    v1::RoundRecord& record = records.emplace_back();
    record.set_kind(kind);
    record.set_epoch(epoch);
    record.set_population(population);
  };
  add(v1::TRAIN_ROUND, 1, 3);
  add(v1::TRAIN_ROUND, 2, 4);
  EXPECT_EQ(MixedEpochs(records), "");  // nothing else was measured
  add(v1::OPTIMUM_ROUND, 2, 4);
  add(v1::OPTIMUM_ROUND, 2, 4);
  EXPECT_EQ(MixedEpochs(records),
            "clients came or left between the measurements: training about those of epochs 1 to 2 "
            "(4 at its end), w* about the 4 clients of epoch 2");
  records.erase(records.begin());
  EXPECT_EQ(MixedEpochs(records), "");
}

}  // namespace
}  // namespace leeway
