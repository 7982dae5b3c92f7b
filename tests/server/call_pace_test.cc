#include "server/call_pace.h"

#include <gtest/gtest.h>

namespace leeway {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);

// All of so many calls, begun at this time, were let in.
bool BeginMany(CallPace& pace, const std::string& caller, uint64_t calls, absl::Time now) {
  bool all = true;
  for (uint64_t i = 0; i < calls; ++i) all = pace.Begin(caller, now) && all;
  return all;
}

TEST(CallPaceTest, ACallerWithMoreThanTwoThousandCallsASecondIsShutOut) {
  CallPace pace;
  EXPECT_TRUE(BeginMany(pace, "a", 2000, kStart));
  EXPECT_FALSE(pace.Begin("a", kStart));
  EXPECT_TRUE(pace.Begin("b", kStart));  // others are not
  EXPECT_FALSE(pace.Begin("a", kStart + absl::Seconds(9)));
  EXPECT_TRUE(pace.Begin("a", kStart + absl::Seconds(10)));
}

TEST(CallPaceTest, TwoThousandInEachSecondAreNotTooMany) {
  CallPace pace;
  for (int second = 0; second < 20; ++second) {
    EXPECT_TRUE(BeginMany(pace, "a", 2000, kStart + absl::Seconds(second)));
  }
}

TEST(CallPaceTest, WhoGoesOnStaysOut) {
  CallPace pace;
  EXPECT_FALSE(BeginMany(pace, "a", 2001, kStart));
  const absl::Time later = kStart + absl::Seconds(9);
  EXPECT_FALSE(BeginMany(pace, "a", 2001, later));  // counts from the last that was too many
  EXPECT_FALSE(pace.Begin("a", kStart + absl::Seconds(18)));
  EXPECT_TRUE(pace.Begin("a", later + absl::Seconds(10)));
}

}  // namespace
}  // namespace leeway
