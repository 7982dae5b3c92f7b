#include "common/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
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

TEST(SamplerTest, GroupsAreBalanced) {
  for (const uint32_t size : {2u, 40u, 47u}) {
    for (const uint32_t groups : {1u, 2u, 20u}) {
      const std::vector<uint32_t> group = DrawGroups(3, 4, 1, size, groups);
      ASSERT_EQ(group.size(), size);
      std::vector<uint32_t> members(groups, 0);
      for (const uint32_t g : group) ++members.at(g);
      EXPECT_LE(*std::max_element(members.begin(), members.end()),
                *std::min_element(members.begin(), members.end()) + 1);
    }
  }
}

TEST(SamplerTest, GroupsAreAFunctionOfTheirArguments) {
  EXPECT_EQ(DrawGroups(1, 2, 1, 100, 5), DrawGroups(1, 2, 1, 100, 5));
  EXPECT_NE(DrawGroups(1, 2, 1, 100, 5), DrawGroups(1, 2, 2, 100, 5));
  EXPECT_NE(DrawGroups(1, 2, 1, 100, 5), DrawGroups(1, 3, 1, 100, 5));
  EXPECT_NE(DrawGroups(1, 2, 1, 100, 5), DrawGroups(2, 2, 1, 100, 5));
}

TEST(SamplerTest, EveryPairIsEquallyLikelyToShareAGroup) {
  constexpr int kRounds = 20000;
  int together[6][6] = {};
  for (int round = 0; round < kRounds; ++round) {
    const auto group = DrawGroups(7, static_cast<uint64_t>(round), 1, 6, 3);
    for (size_t a = 0; a < 6; ++a) {
      for (size_t b = 0; b < a; ++b) together[a][b] += group[a] == group[b];
    }
  }
  const double p = 1.0 / 5;
  for (size_t a = 0; a < 6; ++a) {
    for (size_t b = 0; b < a; ++b) {
      EXPECT_NEAR(together[a][b], kRounds * p, 5 * std::sqrt(kRounds * p * (1 - p)));
    }
  }
}

}  // namespace
}  // namespace leeway
