#include "server/decile_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/rng.h"

namespace leeway {
namespace {

std::vector<double> Counts(const std::vector<double>& values, const std::vector<double>& asked) {
  std::vector<double> above;
  for (const double t : asked) {
    above.push_back(static_cast<double>(
        std::count_if(values.begin(), values.end(), [&](double value) { return value > t; })));
  }
  return above;
}

DecileSearch Searched(DecileSearch search, const std::vector<double>& values) {
  while (!search.done()) {
    // As if the server had been killed between two rounds.
    DecileSearch other = search;
    EXPECT_TRUE(other.Restore(search.Save()).ok());
    other.Narrow(Counts(values, other.thresholds()));
    search = other;
  }
  return search;
}

// The k-th smallest of n, k = ceil(p n).
std::vector<double> Deciles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  std::vector<double> out;
  for (size_t k = 1; k <= 9; ++k) out.push_back(values[(k * values.size() + 9) / 10 - 1]);
  return out;
}

TEST(DecileSearchTest, FindsDecilesOfAnySizeSignAndPlace) {
  Rng rng(1, 0, 0, Purpose::kSyntheticClient);
  for (const size_t clients : {1, 2, 9, 10, 11, 100, 1000}) {
    for (const double scale : {1e-9, 1.0, 100.0}) {
      for (const double shift : {-3.0, 0.0, 20.0}) {
        std::vector<double> values(clients);
        for (double& value : values) value = scale * (rng.Normal() + shift);
        const DecileSearch search = Searched(DecileSearch::OfAnySize(1e5), values);
        const std::vector<double> expected = Deciles(values);
        const std::vector<double> found = search.deciles();
        ASSERT_EQ(found.size(), 9u);
        // 1 % of the range between the outermost, or less than is seen in three digits.
        const double range = expected[8] - expected[0];
        for (size_t k = 0; k < 9; ++k) {
          EXPECT_NEAR(found[k], expected[k], std::max(0.01 * range, 2e-4 * std::abs(expected[k])))
              << clients << " clients, scale " << scale << ", shift " << shift;
        }
        EXPECT_EQ(search.clients(), clients);
        const auto negative = [](double value) { return value < 0; };
        EXPECT_EQ(search.below_zero(), std::count_if(values.begin(), values.end(), negative));
        EXPECT_EQ(search.above_zero() + search.below_zero(), clients);
      }
    }
  }
}

TEST(DecileSearchTest, ZeroIsZero) {
  std::vector<double> values(20, 0.0);
  values[0] = -0.25;
  values[19] = values[18] = 0.5;
  for (const bool any : {true, false}) {
    const DecileSearch search =
        Searched(any ? DecileSearch::OfAnySize(1e3) : DecileSearch::OfRange(1), values);
    for (size_t k = 0; k < 9; ++k) EXPECT_EQ(search.deciles()[k], 0) << k;
    EXPECT_EQ(search.below_zero(), 1u);
    EXPECT_EQ(search.above_zero(), 2u);
  }
}

TEST(DecileSearchTest, SharesAreKnownToFourDigits) {
  Rng rng(2, 0, 0, Purpose::kSyntheticClient);
  std::vector<double> values(57);
  for (double& value : values) value = (static_cast<double>(rng.Below(61)) - 30) / 30;
  const DecileSearch search = Searched(DecileSearch::OfRange(1), values);
  const std::vector<double> expected = Deciles(values);
  for (size_t k = 0; k < 9; ++k) EXPECT_NEAR(search.deciles()[k], expected[k], 1e-4);
}

TEST(DecileSearchTest, NobodyHasNoDeciles) {
  const DecileSearch search = Searched(DecileSearch::OfRange(1), {});
  EXPECT_TRUE(search.deciles().empty());
  EXPECT_EQ(search.clients(), 0u);
}

TEST(DecileSearchTest, BeyondTheLargestCountsAsTheLargest) {
  const DecileSearch search = Searched(DecileSearch::OfAnySize(10), {-99, -99, 99, 99});
  EXPECT_DOUBLE_EQ(search.deciles()[0], -10);
  EXPECT_DOUBLE_EQ(search.deciles()[8], 10);
}

}  // namespace
}  // namespace leeway
