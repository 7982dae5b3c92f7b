// Who computes which client, on costs that are made up: nothing here takes time.
#include "engines/mpi/balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "engines/mpi/shares.h"

namespace leeway {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Sizes of clients as they come in practice: few are large, most are small.
std::vector<uint64_t> UnequalExamples(size_t clients) {
  std::vector<uint64_t> examples(clients);
  for (size_t i = 0; i < clients; ++i) examples[(i * 37) % clients] = 4000 / (i + 1) + 5;
  return examples;
}

TEST(AssignByCostTest, LeavesLessIdleThanEqualCounts) {
  for (const int ranks : {2, 3, 4}) {
    const std::vector<uint64_t> examples = UnequalExamples(101);
    std::vector<double> costs(examples.begin(), examples.end());
    std::vector<int> in_turn(costs.size());
    std::vector<int> in_blocks(costs.size());
    for (size_t i = 0; i < costs.size(); ++i) {
      in_turn[i] = static_cast<int>(i) % ranks;
      in_blocks[i] = static_cast<int>(i * static_cast<size_t>(ranks) / costs.size());
    }
    const double idle = IdleShare(costs, AssignByCost(examples, ranks), ranks);
    EXPECT_LT(idle, 0.01);
    EXPECT_LT(idle, IdleShare(costs, in_turn, ranks));
    EXPECT_LT(idle, IdleShare(costs, in_blocks, ranks));
  }
}

TEST(AssignOrderTest, MovesWhatMakesTheSlowestFaster) {
  // Rank 0 has the three that were sampled.
  EXPECT_THAT(AssignOrder({5, 4, 3}, {0, 0, 0}, 0.25, 2), ElementsAre(0, 1, 1));
  EXPECT_THAT(AssignOrder({5, 4, 3}, {0, 0, 0}, 100, 2), ElementsAre(0, 0, 0));
  EXPECT_THAT(AssignOrder({5, 4, 3}, {-1, -1, -1}, 0.5, 2), ElementsAre(0, 0, 0));  // must stay
  EXPECT_THAT(AssignOrder({5, 4, 3}, {-2, 1, 1}, 0.25, 2), ElementsAre(1, 0, 0));
  // Not worth it: 100 against 99 would become 99.5.
  EXPECT_THAT(AssignOrder({50, 50, 49, 50}, {0, 0, 1, 1}, 0.5, 2), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(AssignOrder({}, {}, 1, 3), ElementsAre());
}

// Simulates rounds whose clients take `seconds`; returns the idle share of the last one.
double LastIdleShare(Balance& balance, const std::vector<double>& seconds, int rounds, int ranks) {
  std::vector<uint32_t> all(seconds.size());
  std::iota(all.begin(), all.end(), 0u);
  double idle = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::vector<int> assigned = balance.Assign(all, /*at_host=*/false);
    idle = IdleShare(seconds, assigned, ranks);
    balance.Add(all, assigned, {seconds, 0, 0});
  }
  return idle;
}

TEST(BalanceTest, MeasuredTimesCorrectWhatExamplesSaid) {
  constexpr int kRanks = 3;
  // All have 100 examples, but every fifth takes ten times as long.
  std::vector<double> seconds(60);
  std::vector<Balance::Client> clients(60);
  for (size_t i = 0; i < 60; ++i) {
    seconds[i] = i % 5 == 0 ? 10 : 1;
    clients[i] = {100, static_cast<int>(i / 20), true};
    if (i < 20 && i % 5 != 0) seconds[i] = 10;  // and all of the first rank's
  }
  Balance one(clients, kRanks);
  const double by_examples = LastIdleShare(one, seconds, 1, kRanks);
  Balance balance(clients, kRanks);
  const double by_time = LastIdleShare(balance, seconds, 3, kRanks);
  EXPECT_GT(by_examples, 0.4);
  EXPECT_LT(by_time, 0.06);  // one long client more or less
}

TEST(BalanceTest, ClientsStayWhereTheyMust) {
  std::vector<Balance::Client> clients(8, Balance::Client{100, 1, false});
  Balance fixed(clients, 2);
  EXPECT_GT(LastIdleShare(fixed, std::vector<double>(8, 1.0), 3, 2), 0.4);
  for (Balance::Client& client : clients) client.movable = true;
  Balance free(clients, 2);
  EXPECT_EQ(LastIdleShare(free, std::vector<double>(8, 1.0), 3, 2), 0);
  // Those who keep a state are computed where it is.
  EXPECT_THAT(free.Assign({0, 3, 5}, /*at_host=*/true), Each(1));
}

TEST(BalanceTest, LoadingThatTakesLongerThanComputingIsNotWorthIt) {
  Balance balance(std::vector<Balance::Client>(8, {100, 0, true}), 2);
  std::vector<uint32_t> all = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<int> home(8, 0);
  balance.Add(all, home, {std::vector<double>(8, 0.001), 8.0, 8});  // a second for each
  EXPECT_THAT(balance.Assign(all, false), Each(0));
}

}  // namespace
}  // namespace leeway
