#include "server/median_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/named_report.h"

namespace leeway {
namespace {

// The tally of clients of which each reports a displacement of this norm, after its own clipping.
Tally Report(v1::Task& task, const std::vector<double>& norms, uint64_t weight = 1) {
  SetRange(256, weight * norms.size(), task);
  const TaskSums sums(task, 1);
  Tally tally(sums.shape());
  for (const double norm : norms) {
    const double sent = task.max_norm() > 0 ? std::min(norm, task.max_norm()) : norm;
    NamedReport<> report(sums, weight);
    report.Set(kDisplacement, Vector<double>::Constant(1, sent)).Derive();
    EXPECT_TRUE(report.AddTo(tally).ok());
  }
  return tally;
}

v1::Task TaskOf(const MedianLimit& limit) {
  v1::Task task;
  Ask(kDisplacement, task);
  limit.Ask(task);
  return task;
}

void Absorb(MedianLimit& limit, const std::vector<double>& norms, uint64_t weight = 1) {
  v1::Task task = TaskOf(limit);
  const Tally tally = Report(task, norms, weight);
  limit.Absorb(task, tally);
}

TEST(MedianLimitTest, FollowsTheMedianFromItsFirstRound) {
  MedianLimit limit(4, 256);
  EXPECT_EQ(limit.limit(), 0);
  EXPECT_EQ(TaskOf(limit).max_norm(), 0);
  std::vector<double> norms = {0.3, 0.1, 0.2, 0.5, 0.25};
  Absorb(limit, norms);
  // The threshold above the median, a factor of 2 away at most.
  EXPECT_GE(limit.limit(), 4 * 0.25);
  EXPECT_LE(limit.limit(), 4 * 0.5);
  // Later rounds are a factor of 2^(1/4) apart, and follow a median that changes.
  for (int round = 0; round < 40; ++round) {
    for (double& norm : norms) norm *= round < 20 ? 0.7 : 1.5;
    Absorb(limit, norms);
    const double median = norms[4];
    EXPECT_GE(limit.limit(), 4 * median * 0.999) << round;
    EXPECT_LE(limit.limit(), 4 * median * 1.2) << round;
  }
}

TEST(MedianLimitTest, AMinorityCannotMoveItBeyondTheOthers) {
  for (const double lie : {0.0, 256.0}) {
    MedianLimit limit(4, 256);
    for (int round = 0; round < 10; ++round) Absorb(limit, {1.1, 1.2, 1.3, lie, lie});
    EXPECT_GE(limit.limit(), 4 * 1.1);
    EXPECT_LE(limit.limit(), 4 * 1.3 * 1.2);
  }
}

TEST(MedianLimitTest, FewClientsSetNoLimit) {
  MedianLimit limit(4, 256);
  const std::vector<double> norms = {0.01, 0.01, 0.01, 10};
  Absorb(limit, norms);
  EXPECT_EQ(limit.limit(), 0);
  v1::Task task = TaskOf(limit);
  const Tally tally = Report(task, norms);
  EXPECT_FALSE(limit.IsExceeded(task, tally, 10));
  Absorb(limit, {0.01, 0.01, 0.01, 0.01, 10});
  EXPECT_GT(limit.limit(), 0);
}

TEST(MedianLimitTest, ClientsAreCountedWhateverTheyWeigh) {
  MedianLimit light(4, 256), heavy(4, 256);
  Absorb(light, {0.1, 0.1, 0.2, 0.4, 0.4});
  Absorb(heavy, {0.1, 0.1, 0.2, 0.4, 0.4}, 1000);
  EXPECT_EQ(light.limit(), heavy.limit());
}

TEST(MedianLimitTest, TellsWhoWasClipped) {
  MedianLimit limit(4, 256);
  Absorb(limit, {1, 1, 1, 1, 1});
  v1::Task task = TaskOf(limit);
  EXPECT_TRUE(task.clip());
  EXPECT_EQ(task.max_norm(), limit.limit());
  EXPECT_EQ(MedianLimit::Clipped(task, Report(task, {1, 1, 100})), 1u);
  EXPECT_EQ(MedianLimit::Clipped(task, Report(task, {1, 1, 0.99 * limit.limit()})), 0u);
}

TEST(MedianLimitTest, AFirstRoundIsRepeatedOnlyWhereTheLimitWouldHaveBitten) {
  const auto exceeded = [](const std::vector<double>& norms, double largest) {
    MedianLimit limit(4, 256);
    v1::Task task = TaskOf(limit);
    const Tally tally = Report(task, norms);
    limit.Absorb(task, tally);
    return limit.IsExceeded(task, tally, largest);
  };
  EXPECT_FALSE(exceeded({1, 1.1, 1.5, 1.2, 3.9}, 3.9));
  EXPECT_TRUE(exceeded({1, 1.1, 1.5, 1.2, 100}, 100));
  // A merged report whose counts are a lie.
  EXPECT_TRUE(exceeded({1, 1.1, 1.5, 1.2, 1}, 100));
}

TEST(MedianLimitTest, NothingMovesAndNothingBreaks) {
  MedianLimit limit(4, 256);
  for (int round = 0; round < 200; ++round) Absorb(limit, {0, 0, 0, 0, 0});
  EXPECT_GT(limit.limit(), 0);
  EXPECT_LT(limit.limit(), 1e-8);
}

TEST(MedianLimitTest, IsSaved) {
  MedianLimit limit(4, 256);
  Absorb(limit, {0.3, 0.1, 0.2, 0.3, 0.1});
  MedianLimit again(4, 256);
  ASSERT_TRUE(again.Restore(limit.Save()).ok());
  EXPECT_EQ(again.limit(), limit.limit());
  EXPECT_TRUE(again.Restore({}).ok());
  EXPECT_FALSE(again.Restore(std::vector<double>{-1}).ok());
  EXPECT_FALSE(again.Restore(std::vector<double>{1, 2}).ok());
  // An earlier version saved the median alone.
  EXPECT_TRUE(again.Restore(std::vector<double>{0.5}).ok());
  EXPECT_EQ(again.limit(), 2);
}

TEST(MedianLimitTest, AutomaticIsThirtyMediansOrAsManyAsThereAreReports) {
  MedianLimit few(0, 256), many(0, 256);
  for (int round = 0; round < 3; ++round) Absorb(few, {1, 1, 1, 1, 1});
  for (int round = 0; round < 3; ++round) Absorb(many, std::vector<double>(100, 1));
  EXPECT_EQ(few.limit(), 30);
  EXPECT_EQ(many.limit(), 100);
}

TEST(MedianLimitTest, AutomaticAsksForFewCounts) {
  MedianLimit limit(0, 256);
  Absorb(limit, {1, 1, 1, 1, 1});
  EXPECT_EQ(TaskOf(limit).sums_size(), 1 + 3);  // the displacement, and counts
}

TEST(MedianLimitTest, AutomaticNarrowsAsLongAsItBites) {
  MedianLimit limit(0, 256);
  std::vector<double> limits;
  for (int round = 0; round < 6; ++round) {
    Absorb(limit, {1, 1, 1, 1, round < 4 ? 200.0 : 1});
    limits.push_back(limit.limit());
  }
  // The first round has no limit, and so nobody is at it.
  EXPECT_THAT(limits, testing::ElementsAre(30, 15, 7.5, 6, 12, 24));
}

TEST(MedianLimitTest, AutomaticLeavesThoseAloneWhoAreStillUnderWay) {
  MedianLimit limit(0, 256);
  Absorb(limit, {1, 1, 1, 1, 1, 1, 1});
  double norm = 1;
  for (int round = 0; round < 30; ++round) {
    norm /= 2;  // most come to rest, two do not
    Absorb(limit, {norm, norm, norm, norm, norm, 0.9, 0.9});
    EXPECT_GE(limit.limit(), 1);
  }
}

TEST(MedianLimitTest, AutomaticDoesNotFollowAMedianThatIsDrivenUp) {
  MedianLimit limit(0, 256);
  Absorb(limit, {1, 1, 1, 1, 1});
  const double first = limit.limit();
  double norm = 1;
  for (int round = 0; round < 8; ++round) {
    norm *= 1.5;
    Absorb(limit, {norm, norm, norm, norm, norm});
  }
  EXPECT_EQ(limit.limit(), 2 * first);
  // It follows one that falls, and is then as strict as before.
  for (int round = 0; round < 40; ++round) Absorb(limit, {0.1, 0.1, 0.1, 0.1, 0.1});
  const double low = limit.limit();
  EXPECT_LT(low, first / 7);
  for (int round = 0; round < 40; ++round) Absorb(limit, {1, 1, 1, 1, 1});
  EXPECT_EQ(limit.limit(), 2 * low);
}

}  // namespace
}  // namespace leeway
