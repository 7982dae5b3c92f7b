#include "engines/mpi/shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SharesTest, NoRankHasMoreThanTheMeanAndTheLargest) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    std::vector<uint64_t> costs(1 + seed * 3);
    for (size_t i = 0; i < costs.size(); ++i) costs[i] = (i * seed * 7919) % 1000 + 1;
    for (const int ranks : {1, 2, 3, 7}) {
      const std::vector<int> assigned = AssignByCost(costs, ranks);
      std::vector<uint64_t> load(static_cast<size_t>(ranks));
      for (size_t i = 0; i < costs.size(); ++i) load[static_cast<size_t>(assigned[i])] += costs[i];
      const uint64_t total = std::accumulate(costs.begin(), costs.end(), uint64_t{0});
      const uint64_t largest = *std::max_element(costs.begin(), costs.end());
      for (const uint64_t one : load) {
        EXPECT_LE(one, total / static_cast<uint64_t>(ranks) + largest);
      }
    }
  }
}

TEST(SharesTest, ClientsWithoutAKnownCostAreSpread) {
  EXPECT_THAT(AssignByCost({0, 0, 0, 0}, 2), ElementsAre(0, 1, 0, 1));
}

TEST(SharesTest, ARangeIsCutIntoPartsThatMissNobody) {
  const std::vector<std::string> data = {"x/synthetic.json:5-14"};
  const std::vector<int> ranks = RanksOf(data, 3);
  EXPECT_THAT(*ShareOf(data, ranks, 0, 3), ElementsAre("x/synthetic.json:5-7"));
  EXPECT_THAT(*ShareOf(data, ranks, 1, 3), ElementsAre("x/synthetic.json:8-10"));
  EXPECT_THAT(*ShareOf(data, ranks, 2, 3), ElementsAre("x/synthetic.json:11-14"));
}

TEST(SharesTest, ARankWithoutClientsIsAnError) {
  const std::vector<std::string> data = {"a", "b"};
  ASSERT_TRUE(ShareOf(data, RanksOf(data, 2), 1, 2).ok());
  EXPECT_THAT(std::string(ShareOf(data, RanksOf(data, 3), 2, 3).status().message()),
              HasSubstr("at most as many ranks as there are clients"));
}

}  // namespace
}  // namespace leeway
