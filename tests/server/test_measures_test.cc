// Test results from sums, against counting pairs one by one.
#include "server/test_measures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/rng.h"
#include "common/sums.h"

namespace leeway {
namespace {

// The share of pairs in which the positive example has the higher score; ties count half.
double PairsInOrder(const std::vector<double>& positives, const std::vector<double>& negatives) {
  double pairs = 0;
  for (const double p : positives) {
    for (const double n : negatives) pairs += p > n ? 1 : p == n ? 0.5 : 0;
  }
  return pairs / static_cast<double>(positives.size() * negatives.size());
}

std::vector<double> Above(const std::vector<double>& scores,
                          const std::vector<double>& thresholds) {
  std::vector<double> counts;
  for (const double t : thresholds) {
    double count = 0;
    for (const double score : scores) count += score > t ? 1 : 0;
    counts.push_back(count);
  }
  return counts;
}

TEST(AreaUnderCurveTest, IsTheShareOfPairsInOrder) {
  // Scores on a grid, with a threshold between any two places: nothing is lost.
  std::vector<double> thresholds;
  for (int i = -20; i <= 20; ++i) thresholds.push_back(i + 0.5);
  Rng rng(3, 0, 0, Purpose::kTest);
  std::vector<double> positives, negatives;
  for (int i = 0; i < 40; ++i) positives.push_back(std::floor(4 * rng.Normal()) + 2);
  for (int i = 0; i < 70; ++i) negatives.push_back(std::floor(4 * rng.Normal()));
  EXPECT_NEAR(AreaUnderCurve(40, Above(positives, thresholds), 70, Above(negatives, thresholds)),
              PairsInOrder(positives, negatives), 1e-12);
}

TEST(AreaUnderCurveTest, OneClassHasNoCurve) {
  EXPECT_TRUE(std::isnan(AreaUnderCurve(0, {0, 0}, 5, {3, 1})));
  EXPECT_TRUE(std::isnan(AreaUnderCurve(5, {3, 1}, 0, {0, 0})));
}

TEST(AreaUnderCurveTest, EqualScoresAreWorthHalf) {
  EXPECT_EQ(AreaUnderCurve(3, {}, 4, {}), 0.5);
  EXPECT_EQ(AreaUnderCurve(3, std::vector<double>{3}, 4, std::vector<double>{0}), 1);
}

TEST(AskForTestsTest, AsksForScoresOfTwoClassesOnly) {
  v1::Model model;
  model.mutable_softmax_regression()->set_classes(2);
  v1::Task two;
  AskForTests(model, two);
  EXPECT_TRUE(Asks(two, kPositiveScoreAbove));
  model.mutable_softmax_regression()->set_classes(3);
  v1::Task three;
  AskForTests(model, three);
  EXPECT_FALSE(Asks(three, kPositiveScoreAbove));
  EXPECT_TRUE(Asks(three, kTestLabelAbove));
  // A worker's own model: nobody tells what its targets are.
  model.set_file("initial.safetensors");
  v1::Task file;
  AskForTests(model, file);
  EXPECT_FALSE(Asks(file, kTestLabelAbove));
  EXPECT_TRUE(CheckSums(two).ok());
  EXPECT_TRUE(CheckSums(three).ok());
}

}  // namespace
}  // namespace leeway
