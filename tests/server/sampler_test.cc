#include "server/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace leeway {
namespace {

TEST(SamplerTest, DrawsDistinctClientsInOrder) {
  for (uint64_t round = 0; round < 200; ++round) {
    const std::vector<uint32_t> cohort = SampleCohort(1, round, 1, 50, 20);
    ASSERT_EQ(cohort.size(), 20u);
    const std::set<uint32_t> distinct(cohort.begin(), cohort.end());
    EXPECT_EQ(distinct.size(), 20u);
    EXPECT_LT(*distinct.rbegin(), 50u);
    EXPECT_TRUE(std::is_sorted(cohort.begin(), cohort.end()));
  }
}

TEST(SamplerTest, IsAFunctionOfItsArguments) {
  EXPECT_EQ(SampleCohort(1, 2, 1, 1000, 30), SampleCohort(1, 2, 1, 1000, 30));
  EXPECT_NE(SampleCohort(1, 2, 1, 1000, 30), SampleCohort(1, 2, 2, 1000, 30));
  EXPECT_NE(SampleCohort(1, 2, 1, 1000, 30), SampleCohort(1, 3, 1, 1000, 30));
  EXPECT_NE(SampleCohort(1, 2, 1, 1000, 30), SampleCohort(2, 2, 1, 1000, 30));
}

TEST(SamplerTest, ZeroOrTooManyMeansAll) {
  EXPECT_EQ(SampleCohort(1, 1, 1, 5, 0), (std::vector<uint32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(SampleCohort(1, 1, 1, 5, 9).size(), 5u);
}

TEST(SamplerTest, EveryClientAndEveryPairIsEquallyLikely) {
  constexpr int kRounds = 20000;
  constexpr uint32_t kClients = 10;
  constexpr uint32_t kSize = 4;
  std::vector<int> single(kClients, 0);
  std::vector<int> pair(kClients * kClients, 0);
  for (int round = 0; round < kRounds; ++round) {
    const auto cohort = SampleCohort(7, static_cast<uint64_t>(round), 1, kClients, kSize);
    for (const uint32_t a : cohort) {
      ++single[a];
      for (const uint32_t b : cohort) pair[a * kClients + b] += a < b;
    }
  }
  const double p1 = 0.4;
  const double p2 = 4.0 * 3 / (10 * 9);
  for (uint32_t a = 0; a < kClients; ++a) {
    EXPECT_NEAR(single[a], kRounds * p1, 5 * std::sqrt(kRounds * p1 * (1 - p1)));
    for (uint32_t b = a + 1; b < kClients; ++b) {
      EXPECT_NEAR(pair[a * kClients + b], kRounds * p2, 5 * std::sqrt(kRounds * p2 * (1 - p2)));
    }
  }
}

}  // namespace
}  // namespace leeway
