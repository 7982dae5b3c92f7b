#include "server/step_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/rng.h"

namespace leeway {
namespace {

TEST(StepScheduleTest, StepsStayWhileEveryRoundKeepsItsPromise) {
  StepSchedule schedule(32, true);
  double loss = 100;
  for (int round = 0; round < 50; ++round) {
    schedule.Absorb(loss, 1);
    EXPECT_EQ(schedule.steps(), 32u);
    loss -= 1;
  }
}

TEST(StepScheduleTest, ARoundThatBringsLessThanOneGradientStepHalvesThem) {
  StepSchedule schedule(32, true);
  schedule.Absorb(10, 1);
  schedule.Absorb(9.5, 1);  // lower by 0.5 where one step guarantees 1
  EXPECT_EQ(schedule.steps(), 16u);
  // The step from 9.5 was still one of 32: it does not count against 16.
  schedule.Absorb(9.4, 1);
  EXPECT_EQ(schedule.steps(), 16u);
  schedule.Absorb(9.3, 1);
  EXPECT_EQ(schedule.steps(), 8u);
}

TEST(StepScheduleTest, TheEndIsOneStep) {
  StepSchedule schedule(5, true);
  for (int round = 0; round < 20; ++round) schedule.Absorb(1 + round, 1);  // ever worse
  EXPECT_EQ(schedule.steps(), 1u);
}

TEST(StepScheduleTest, ALossThatIsNotANumberCountsAsNoDecrease) {
  StepSchedule schedule(4, true);
  schedule.Absorb(1, 0.1);
  schedule.Absorb(std::nan(""), 0.1);
  EXPECT_EQ(schedule.steps(), 2u);
}

// Losses fall by `slope` a round, with noise of `sd`. Returns the round of the first halving, or 0.
int FirstHalving(double slope, double guaranteed, double sd, uint64_t seed) {
  Rng rng(seed, 0, 0, Purpose::kTest);
  StepSchedule schedule(64, false);
  for (int round = 1; round <= 2000; ++round) {
    schedule.Absorb(10 - slope * round + sd * rng.Normal(), guaranteed);
    if (schedule.steps() < 64) return round;
  }
  return 0;
}

TEST(StepScheduleTest, NoiseDelaysTheDecisionAndSeldomMakesOne) {
  int false_alarms = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    // Half of what is promised: noticed, however small beside the noise.
    EXPECT_GT(FirstHalving(0.01, 0.02, 0.1, seed), 0) << seed;
    // Four times what is promised.
    if (FirstHalving(0.04, 0.01, 0.1, seed) > 0) ++false_alarms;
  }
  EXPECT_LT(false_alarms, 50);
}

TEST(StepScheduleTest, ARestoredScheduleGoesOnAsBefore) {
  Rng rng(1, 0, 0, Purpose::kTest);
  StepSchedule one(64, false);
  for (int round = 0; round < 300; ++round) {
    StepSchedule other(64, false);
    ASSERT_TRUE(other.Restore(one.Save()).ok());
    const double loss = 10 - 0.01 * round + 0.1 * rng.Normal();
    one.Absorb(loss, 0.03);
    other.Absorb(loss, 0.03);
    EXPECT_EQ(one.steps(), other.steps());
    for (size_t i = 0; i < StepSchedule::kStateSize; ++i) {
      const double a = one.Save()[i];
      const double b = other.Save()[i];
      EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b)));
    }
  }
  EXPECT_FALSE(one.Restore(std::vector<double>{1, 2}).ok());
}

}  // namespace
}  // namespace leeway
