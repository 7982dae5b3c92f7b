#include "common/sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <Eigen/Core>
#include <cmath>
#include <vector>

#include "common/rng.h"
#include "tests/named_report.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kNone = TaskSums::kNone;

std::vector<std::string> Names(const std::vector<NumberSum>& sums) {
  std::vector<std::string> names;
  for (const NumberSum& sum : sums) names.push_back(sum.name);
  return names;
}
std::vector<std::string> Names(const std::vector<VectorSum>& sums) {
  std::vector<std::string> names;
  for (const VectorSum& sum : sums) names.push_back(sum.name);
  return names;
}

template <typename T>
Vector<T> Normals(Eigen::Index size, uint64_t seed) {
  Rng rng(seed, 0, 0, Purpose::kTest);
  Vector<T> out(size);
  for (T& x : out) x = static_cast<T>(rng.Normal());
  return out;
}

// Two drifts, everything that follows from them, and a number of each other kind.
v1::Task Probe(v1::WireEncoding encoding = v1::EXACT) {
  v1::Task task;
  task.set_encoding(encoding);
  Ask(kLossSquared, task);  // before what it follows from
  Ask(kDrift, task, 2);
  Ask(kDriftSquared, task, 2);
  Ask(kDriftSquared, task, 5);
  Ask(kWeightedDriftSquared, task, 5);
  Ask(kDrift, task, 5);
  Ask(kIterateBiasSquared, task, 5);
  Ask(kGradient, task);
  Ask(kGradientSquared, task);
  Ask(kLoss, task);
  for (const char* name : {kWeight, kWeightedLoss, kWeightedLossSquared}) Ask(name, task);
  SetRange(256, 100, task);
  return task;
}

TEST(SumsTest, TheOrderIsTheTasks) {
  const TaskSums sums(Probe(), 3);
  EXPECT_THAT(Names(sums.shape().vectors),
              ElementsAre("drift after 2 steps", "drift after 5 steps", "gradient"));
  EXPECT_THAT(
      Names(sums.shape().numbers),
      ElementsAre("loss_squared", "drift_squared after 2 steps", "drift_squared after 5 steps",
                  "weighted_drift_squared after 5 steps", "iterate_bias_squared after 5 steps",
                  "gradient_squared", "loss", "weight", "weighted_loss", "weighted_loss_squared"));
  EXPECT_EQ(sums.vector(kDrift, 2), 0);
  EXPECT_EQ(sums.vector(kDrift, 5), 1);
  EXPECT_EQ(sums.vector(kGradient), 2);
  EXPECT_EQ(sums.number(kLossSquared), 0);
  EXPECT_EQ(sums.number(kDriftSquared, 5), 2);
  EXPECT_EQ(sums.number(kLoss), 6);
  EXPECT_THAT(sums.StepsOf(kDrift), ElementsAre(2, 5));
  EXPECT_THAT(sums.StepsOf(kGradient), ElementsAre(0));
  EXPECT_EQ(sums.numbers(), 10u);
  EXPECT_EQ(sums.vectors(), 3u);
}

TEST(SumsTest, WhatIsNotAskedTakesNoPlace) {
  v1::Task task;
  Ask(kDisplacement, task);
  Ask(kLoss, task);
  Ask(kLoss, task);  // once is enough
  const TaskSums sums(task, 3);
  EXPECT_EQ(sums.vectors(), 1u);
  EXPECT_EQ(sums.numbers(), 1u);
  EXPECT_EQ(sums.vector(kDisplacement), 0);
  EXPECT_EQ(sums.vector(kDisplacement, 1), kNone);
  EXPECT_EQ(sums.number(kDisplacement), kNone);  // a vector is not a number
  EXPECT_EQ(sums.vector(kGradient), kNone);
  EXPECT_EQ(sums.number(kTestLoss), kNone);
  EXPECT_TRUE(sums.StepsOf(kDrift).empty());
  EXPECT_TRUE(Asks(task, kLoss));
  EXPECT_FALSE(Asks(task, kLossSquared));
}

TEST(SumsTest, ShapeComesFromTheTask) {
  v1::Task task;
  Ask(kGradient, task).set_largest(16);
  Ask(kDisplacement, task).set_largest(1000);
  Ask(kHessian, task).set_largest(1);
  Ask(kLoss, task);
  AskAbove(kSmoothnessAbove, 0.5, task);
  AskAbove(kSmoothnessAbove, 0.75, task);
  SetUnits(10, task);
  const TallyShape shape = TaskSums(task, 30).shape();
  EXPECT_EQ(shape.dimension, 30u);
  EXPECT_EQ(shape.groups, 1u);
  ASSERT_EQ(shape.vectors.size(), 32u);  // a matrix is a vector per parameter
  EXPECT_EQ(shape.vectors[0], (VectorSum{"gradient", FractionBits(16, 10), 16}));
  EXPECT_EQ(shape.vectors[1], (VectorSum{"displacement", FractionBits(1000, 10), 1000}));
  EXPECT_EQ(shape.vectors[31], (VectorSum{"hessian", FractionBits(1, 10), 1}));
  EXPECT_LT(shape.vectors[1].fraction_bits, shape.vectors[0].fraction_bits);
  ASSERT_EQ(shape.numbers.size(), 3u);
  EXPECT_EQ(shape.numbers[0], (NumberSum{"loss"}));
  for (const size_t k : {size_t{1}, size_t{2}}) {
    EXPECT_EQ(shape.numbers[k], (NumberSum{"smoothness_above", 0, 1}));
  }
  EXPECT_EQ(TaskSums(task, 30).number(kSmoothnessAbove), 1);
  task.set_groups(4);
  EXPECT_EQ(TaskSums(task, 30).shape().groups, 4u);
}

TEST(SumsTest, UnitsAreThePowersOfTwoOfTheTallysIntegers) {
  v1::Task task = Probe();
  for (const v1::Sum& sum : task.sums()) {
    if (sum.shape() == v1::NUMBER) continue;
    EXPECT_EQ(sum.unit(), std::ldexp(1.0, -FractionBits(256, 100)));
  }
  EXPECT_TRUE(CheckSums(task).ok());
  for (const double unit : {0.0, -0.5, 0.3, std::nan("")}) {
    task.mutable_sums(1)->set_unit(unit);
    const absl::Status status = CheckSums(task);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << unit;
    EXPECT_THAT(std::string(status.message()), HasSubstr("the unit of 'drift'"));
  }
}

TEST(SumsTest, AnUnknownNameIsRefusedByItsName) {
  v1::Task task = Probe();
  v1::Sum& sum = *task.add_sums();
  sum.set_name("kurtosis");
  sum.set_shape(v1::NUMBER);
  absl::Status status = CheckSums(task);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'kurtosis'"));
  sum.set_name(kDisplacement);  // known, but not as a number
  status = CheckSums(task);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'displacement' as NUMBER"));
}

// Else a client would have to leave it at 0 without a word.
TEST(SumsTest, ASumThatCannotBeMeasuredIsRefused) {
  const struct {
    std::vector<std::string> names;
    uint32_t steps;  // of the last
    std::string message;
  } cases[] = {
      {{kLossSquared}, 0, "'loss_squared' without 'loss'"},
      {{kLoss, kWeightedLoss, kGradientSquared}, 0, "'gradient_squared' without 'gradient'"},
      {{kDrift, kDriftSquared}, 2, "'drift_squared after 2 steps' without 'drift'"},
      {{kDrift, kIterateBiasSquared}, 3, "without 'drift'"},
      {{kPseudoGradientVariance}, 0, "without 'drift'"},
      {{kDisplacement, kEncodingVariance}, 0, "without 'drift'"},
      {{kDrift, kEncodingError}, 0, "'encoding_error' without 'displacement'"},
      {{kLoss, kDisplacement}, 3, "'displacement' after 3 steps"},
      {{kLoss, kGradient}, 1, "'gradient' after 1 steps"},
  };
  for (const auto& c : cases) {
    v1::Task task;
    for (const std::string& name : c.names) {
      Ask(name, task, name == c.names.back() ? c.steps : 0);
    }
    SetRange(256, 10, task);
    EXPECT_THAT(std::string(CheckSums(task).message()), HasSubstr(c.message));
  }
  v1::Task twice = Probe();
  *twice.add_sums() = twice.sums(1);
  EXPECT_THAT(std::string(CheckSums(twice).message()), HasSubstr("'drift after 2 steps' twice"));
  v1::Task counts;  // of which there may be many
  for (const double t : {1.0, 2.0, 2.0}) AskAbove(kConvexityAbove, t, counts);
  Ask(kWeight, counts);
  EXPECT_TRUE(CheckSums(counts).ok());
}

TEST(SumsTest, AMetricIsANumberOfAnyNameThatIsSent) {
  v1::Task task;
  Ask(kLoss, task);
  Ask("metric/perplexity", task);
  Ask("metric/loss_above", task);  // no count, whatever its name
  ASSERT_TRUE(CheckSums(task).ok()) << CheckSums(task);
  const TaskSums sums(task, 3);
  EXPECT_EQ(sums.number("metric/loss_above"), 2);
  EXPECT_EQ(sums.sent_numbers(), 3u);
  EXPECT_EQ(MetricName("metric/loss_above"), "loss_above");
  EXPECT_EQ(MetricName(kLoss), "");
  v1::Sum twice = task.sums(2);
  *task.add_sums() = twice;
  EXPECT_THAT(std::string(CheckSums(task).message()), HasSubstr("'metric/loss_above' twice"));
  task.mutable_sums()->RemoveLast();
  Ask(kMetric, task).set_shape(v1::NUMBER);
  EXPECT_EQ(CheckSums(task).code(), absl::StatusCode::kUnimplemented);
}

TEST(SumsTest, NumbersThatFollowFromTheRestAreNotSent) {
  const TaskSums sums(Probe(), 3);
  std::vector<double> numbers(sums.numbers());
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i) + 0.5;
  EXPECT_EQ(sums.sent_numbers(), 2u);
  const std::vector<double> sent = sums.Sent(numbers);
  EXPECT_THAT(sent, ElementsAre(4.5, 6.5));  // iterate_bias_squared, loss
  const std::vector<double> spread = sums.Spread(sent);
  EXPECT_THAT(spread, ElementsAre(0, 0, 0, 0, 4.5, 0, 6.5, 0, 0, 0));
}

TEST(SumsTest, ShortEncodingsSendWhatFollowsFromVectors) {
  for (const v1::WireEncoding encoding : {v1::BFLOAT16_WIRE, v1::INT8_WIRE}) {
    const TaskSums sums(Probe(encoding), 3);
    std::vector<double> numbers(sums.numbers());
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i);
    // All but the loss's squares and the weight's multiples.
    EXPECT_THAT(sums.Sent(numbers), ElementsAre(1, 2, 3, 4, 5, 6));
    EXPECT_EQ(sums.sent_numbers(), 6u);
  }
}

template <typename T>
void CheckDerived() {
  const TaskSums sums(Probe(), 40);
  NamedReport<T> report(sums, 7);
  const Vector<T> drift2 = Normals<T>(40, 1), drift5 = Normals<T>(40, 2), g = Normals<T>(40, 3);
  report.Set(kLoss, -3).Set(kIterateBiasSquared, -0.25, 5);
  report.Set(kDrift, drift2, 2).Set(kDrift, drift5, 5).Set(kGradient, g).Derive();
  const auto squared = [](const Vector<T>& x) { return x.template cast<double>().squaredNorm(); };
  EXPECT_EQ(report.number(kLossSquared), 9);
  EXPECT_EQ(report.number(kWeight), 7);
  EXPECT_EQ(report.number(kWeightedLoss), -21);
  EXPECT_EQ(report.number(kWeightedLossSquared), 63);
  EXPECT_NEAR(report.number(kGradientSquared), squared(g), 1e-15 * squared(g));
  EXPECT_NEAR(report.number(kDriftSquared, 2), squared(drift2), 1e-15 * squared(drift2));
  EXPECT_NEAR(report.number(kDriftSquared, 5), squared(drift5), 1e-15 * squared(drift5));
  EXPECT_EQ(report.number(kWeightedDriftSquared, 5), 7 * report.number(kDriftSquared, 5));
  // What was measured stays.
  EXPECT_EQ(report.number(kLoss), -3);
  EXPECT_EQ(report.number(kIterateBiasSquared, 5), -0.25);
  EXPECT_EQ(report.vector(kDrift, 5), drift5);

  // A reader has the same from what is sent.
  std::vector<double> read = sums.Spread(sums.Sent(report.report().numbers));
  sums.Derive<T>(7, report.report().vectors, absl::MakeSpan(read));
  EXPECT_EQ(read, report.report().numbers);

  // Of decoded vectors, what follows from vectors is as it was sent.
  NamedReport<T> decoded = report;
  decoded.Set(kDrift, Vector<T>(Vector<T>::Zero(40)), 5).Set(kLoss, 2);
  sums.Derive<T>(7, decoded.report().vectors, absl::MakeSpan(decoded.report().numbers), true);
  EXPECT_EQ(decoded.number(kDriftSquared, 5), report.number(kDriftSquared, 5));
  EXPECT_EQ(decoded.number(kWeightedDriftSquared, 5), report.number(kWeightedDriftSquared, 5));
  EXPECT_EQ(decoded.number(kLossSquared), 4);
}

TEST(SumsTest, DeriveFillsInWhatFollows) {
  CheckDerived<double>();
  CheckDerived<float>();
}

TEST(SumsTest, SquaredNormIsEigensAndHasTheSameBitsWhereverItStands) {
  for (const Eigen::Index size : {0, 1, 7, 8, 9, 63, 1000, 100'003}) {
    const double precision = size <= 1000 ? 1e-15 : 1e-13;  // roundings add up
    const Vector<double> x = Normals<double>(size, 5) * 1e3;
    const double exact =
        static_cast<double>(x.cast<long double>().squaredNorm());  // more digits than either
    const double norm = SquaredNorm<double>({x.data(), static_cast<size_t>(size)});
    EXPECT_NEAR(norm, x.squaredNorm(), precision * exact) << size;
    EXPECT_NEAR(norm, exact, precision * exact) << size;
    const Vector<float> narrow = x.cast<float>();
    const double wide = static_cast<double>(narrow.cast<long double>().squaredNorm());
    EXPECT_NEAR(SquaredNorm<float>({narrow.data(), static_cast<size_t>(size)}), wide,
                precision * wide);
    for (const size_t shift : {size_t{1}, size_t{3}}) {  // at any address
      std::vector<double> elsewhere(static_cast<size_t>(size) + shift);
      std::copy(x.begin(), x.end(), elsewhere.begin() + static_cast<std::ptrdiff_t>(shift));
      EXPECT_EQ(SquaredNorm(absl::MakeConstSpan(elsewhere).subspan(shift)), norm);
    }
  }
}

}  // namespace
}  // namespace leeway
