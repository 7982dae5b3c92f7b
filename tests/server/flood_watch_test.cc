#include "server/flood_watch.h"

#include <gtest/gtest.h>

#include "server/byte_budget.h"

namespace leeway {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
const absl::Time kStart = absl::FromUnixSeconds(1000);

TEST(ByteBudgetTest, MessagesPayForTheirBytes) {
  ByteBudget budget;
  uint64_t received = 0;
  uint64_t messages = 0;
  // Reports of 100 MiB a second for a minute, with 3 % of frames around them.
  for (int second = 0; second < 60; ++second) {
    messages += 100 * ByteBudget::WithFrames(kMiB);
    received += 103 * kMiB;
    budget.Look(received, messages, true, kStart + absl::Seconds(second));
    EXPECT_EQ(budget.debt(), 0u);
  }
}

TEST(ByteBudgetTest, AMessageUnderWayIsOwedUntilItIsRead) {
  ByteBudget budget;
  budget.Look(10 * kMiB, 0, true, kStart);
  EXPECT_EQ(budget.debt(), 10 * kMiB);
  budget.Look(10 * kMiB, 10 * kMiB, true, kStart);
  EXPECT_EQ(budget.debt(), 0u);
  // There is no credit for what comes later.
  budget.Look(10 * kMiB, 20 * kMiB, true, kStart);
  budget.Look(15 * kMiB, 20 * kMiB, true, kStart);
  EXPECT_EQ(budget.debt(), 5 * kMiB);
}

TEST(ByteBudgetTest, WhatBelongsToNoMessageAddsUp) {
  ByteBudget flood;
  ByteBudget slow;
  ByteBudget stranger;
  for (uint64_t second = 0; second <= 20; ++second) {
    const absl::Time now = kStart + absl::Seconds(second);
    flood.Look(10 * second * kMiB, 0, true, now);
    slow.Look(second * kMiB, 0, true, now);
    stranger.Look(second * kMiB, 0, false, now);
  }
  EXPECT_EQ(flood.debt(), 20 * (10 * kMiB - ByteBudget::kPerSecond));
  EXPECT_EQ(slow.debt(), 0u);
  EXPECT_EQ(stranger.debt(), 20 * kMiB);  // who has made no call has nothing to send
}

TEST(FloodWatchTest, WhoHasProvedNothingGetsLessWhileSomebodyFloods) {
  FloodWatch watch;
  EXPECT_EQ(watch.Allowed(false, kStart), FloodWatch::kOneMessage);
  EXPECT_EQ(watch.Allowed(true, kStart), FloodWatch::kWithCalls);
  watch.Alarm(kStart);
  EXPECT_TRUE(watch.alarmed(kStart));
  EXPECT_EQ(watch.Allowed(false, kStart), FloodWatch::kHandshake);
  EXPECT_EQ(watch.Allowed(true, kStart), FloodWatch::kWithCalls);
  EXPECT_LT(watch.Pause(kStart), FloodWatch::kQuietPause);
  const absl::Time later = kStart + FloodWatch::kAlarm;
  EXPECT_FALSE(watch.alarmed(later));
  EXPECT_EQ(watch.Allowed(false, later), FloodWatch::kOneMessage);
}

TEST(FloodWatchTest, MemoryThatGrowsFastIsNoticed) {
  FloodWatch watch;
  absl::Time now = kStart;
  watch.SetMemory(30 * kMiB, now);
  EXPECT_FALSE(watch.memory_short());
  now += absl::Seconds(1);
  watch.SetMemory(900 * kMiB, now);
  EXPECT_TRUE(watch.memory_short());
  EXPECT_TRUE(watch.alarmed(now));
  EXPECT_EQ(watch.Allowed(true, now), FloodWatch::kOneMessage);
  // It is back to what it was.
  now += absl::Seconds(1);
  watch.SetMemory(40 * kMiB, now);
  EXPECT_FALSE(watch.memory_short());
  // If it stays, that is the size of the run.
  for (int i = 0; i < 600; ++i) watch.SetMemory(900 * kMiB, now += absl::Seconds(1));
  EXPECT_FALSE(watch.memory_short());
  EXPECT_FALSE(watch.alarmed(now));
}

TEST(FloodWatchTest, MemoryThatGrowsSlowlyIsNoFlood) {
  FloodWatch watch;
  absl::Time now = kStart;
  for (uint64_t i = 0; i < 3600; ++i) {
    watch.SetMemory((30 + i) * kMiB, now += absl::Seconds(1));
    EXPECT_FALSE(watch.memory_short());
  }
}

}  // namespace
}  // namespace leeway
