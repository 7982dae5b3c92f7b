#include "client/cost_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "client/work_times.h"

namespace leeway {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

TEST(CostBookTest, ExamplesAreTheCostUntilAClientIsTimed) {
  CostBook book;
  EXPECT_EQ(book.Cost(3, 40), 40);
  EXPECT_EQ(book.Cost(4, 0), 1);  // an evaluator works, too
  book.Add({});
  book.Add({{{5, 10, 0}}});  // not computed
  EXPECT_EQ(book.Cost(5, 10), 10);
}

TEST(CostBookTest, TimesAreOnTheScaleOfThoseTimedTogether) {
  CostBook book;
  // Client 1 needs three times as long per example as client 0: 2 s on average per 2 examples.
  book.Add({{{0, 100, 0.1}, {1, 100, 0.3}}});
  EXPECT_NEAR(book.Cost(0, 100), 50, 1e-4);
  EXPECT_NEAR(book.Cost(1, 100), 150, 1e-4);
  EXPECT_EQ(book.Cost(2, 100), 100);
  // A task that takes a thousandth of the time says the same of client 2 beside client 1.
  for (int i = 0; i < 40; ++i) book.Add({{{1, 100, 0.0003}, {2, 100, 0.0001}}});
  EXPECT_NEAR(book.Cost(1, 100) / book.Cost(2, 100), 3, 1e-3);
}

TEST(CostBookTest, OneInterruptionIsForgotten) {
  CostBook book;
  book.Add({{{0, 10, 1}, {1, 10, 1000}}});
  EXPECT_LE(book.Cost(1, 10), 160);  // a ratio of at most 16
  for (int i = 0; i < 60; ++i) book.Add({{{0, 10, 1}, {1, 10, 1}}});
  EXPECT_NEAR(book.Cost(1, 10) / book.Cost(0, 10), 1, 1e-3);
}

TEST(IdleShareTest, IsWhatWaitsForTheSlowest) {
  EXPECT_EQ(IdleShare({}, {}, 2), 0);
  EXPECT_EQ(IdleShare({3, 3}, {0, 1}, 2), 0);
  EXPECT_EQ(IdleShare({4, 2}, {0, 1}, 2), 0.25);  // 2 of 8
  EXPECT_EQ(IdleShare({4}, {1}, 4), 0.75);
}

TEST(WorkTimesTest, AClientTakesTheTimeSinceItsThreadWasLastDone) {
  const WorkTimes::Clock::time_point begin;
  const auto at = [&](int ms) { return begin + std::chrono::milliseconds(ms); };
  WorkTimes times(4, 2, begin);
  times.Done(2, at(100));
  std::thread([&] { times.Done(0, at(250)); }).join();
  times.Done(3, at(400));
  EXPECT_THAT(times.seconds(),
              ElementsAre(DoubleNear(0.25, 1e-9), 0, DoubleNear(0.1, 1e-9), DoubleNear(0.3, 1e-9)));
  EXPECT_NEAR(times.wall(), 0.4, 1e-9);
  EXPECT_NEAR(times.busy(), 0.65, 1e-9);
  EXPECT_NEAR(times.idle(), 0.15, 1e-9);  // of the second thread, from 250 to 400 ms
}

TEST(WorkTimesTest, AThreadThatNeverWorkedIsIdle) {
  const WorkTimes::Clock::time_point begin;
  WorkTimes times(1, 3, begin);
  EXPECT_EQ(times.idle(), 0);
  times.Done(0, begin + std::chrono::seconds(2));
  EXPECT_NEAR(times.idle(), 4, 1e-9);
}

}  // namespace
}  // namespace leeway
