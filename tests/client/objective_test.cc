#include "client/objective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "client/curvature.h"
#include "tests/client/synthetic.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;
using testing_data::Array;
using testing_data::Labels;
using testing_data::LinearModel;
using testing_data::Make;
using testing_data::RandomLabels;
using testing_data::RandomMatrix;
using testing_data::RandomVector;
using testing_data::Regression;
using testing_data::SoftmaxModel;
using Index = Eigen::Index;

Dataset Classification(Index n, Index d, uint32_t classes, uint64_t seed) {
  Dataset data;
  data.id = "client-7";
  data.train = {Array(RandomMatrix(n, d, seed)),
                Labels(RandomLabels(static_cast<size_t>(n), classes, seed))};
  data.test = DataPart{Array(RandomMatrix(n + 3, d, seed + 1)),
                       Labels(RandomLabels(static_cast<size_t>(n + 3), classes, seed + 1))};
  return data;
}

// Central differences of the loss against the gradient, coordinate by coordinate.
void ExpectGradientMatches(Objective<double>& objective, const Vector<double>& w,
                           absl::Span<const uint32_t> rows) {
  Vector<double> gradient(w.size()), unused(w.size());
  objective.Evaluate(w, rows, gradient);
  const double step = 1e-5;
  for (Index i = 0; i < w.size(); ++i) {
    Vector<double> above = w, below = w;
    above[i] += step;
    below[i] -= step;
    const double slope =
        (objective.Evaluate(above, rows, unused) - objective.Evaluate(below, rows, unused)) /
        (2 * step);
    EXPECT_NEAR(gradient[i], slope, 1e-7 * std::max(1.0, std::abs(slope))) << i;
  }
}

TEST(LinearRegressionTest, GradientMatchesFiniteDifferences) {
  const std::vector<uint32_t> rows = {3, 0, 11};
  for (Index n : {12, 40}) {  // with d = 30: without and with the Gram matrix
    auto objective = Make(LinearModel(0.3), Regression(RandomMatrix(n, 30, 1), RandomVector(n, 2)));
    ExpectGradientMatches(*objective, RandomVector(30, 3), {});
    ExpectGradientMatches(*objective, RandomVector(30, 3), rows);
  }
}

TEST(LinearRegressionTest, MatchesTheFormula) {
  const Matrix<double> x = RandomMatrix(25, 4, 1);
  const Vector<double> y = RandomVector(25, 2), w = RandomVector(4, 3);
  auto objective = Make(LinearModel(0.5), Regression(x, y));
  double loss = 0.25 * w.squaredNorm();
  Vector<double> expected = 0.5 * w;
  for (Index i = 0; i < 25; ++i) {
    const double error = x.row(i).dot(w) - y[i];
    loss += 0.5 * error * error / 25;
    expected += error * x.row(i).transpose() / 25;
  }
  Vector<double> gradient(4);
  EXPECT_NEAR(objective->Evaluate(w, {}, gradient), loss, 1e-14);
  EXPECT_NEAR((gradient - expected).norm(), 0, 1e-14);
  EXPECT_EQ(objective->examples(), 25u);
}

// An intercept is the weight of one more column, of ones: in loss, gradient, batches,
// curvature and test loss, with and without the Gram matrix.
TEST(LinearRegressionTest, AnInterceptIsTheWeightOfAColumnOfOnes) {
  const std::vector<uint32_t> rows = {3, 0, 11};
  for (const Index n : {12, 40}) {
    const Matrix<double> x = RandomMatrix(n, 30, 1);
    Matrix<double> with_ones(n, 31);
    with_ones << x, Vector<double>::Ones(n);
    const Vector<double> y = RandomVector(n, 2).array() + 7;
    Dataset plain = Regression(x, y), wide = Regression(with_ones, y);
    plain.test = plain.train;
    wide.test = wide.train;
    auto expected = Make(LinearModel(0.3), wide);
    auto objective = Make(LinearModel(0.3, /*intercept=*/true), plain);
    const Vector<double> w = RandomVector(31, 3);
    Vector<double> a(31), b(31);
    for (const absl::Span<const uint32_t> some : {absl::Span<const uint32_t>(), {rows}}) {
      EXPECT_EQ(objective->Evaluate(w, some, a), expected->Evaluate(w, some, b));
      EXPECT_EQ(a, b);
      ExpectGradientMatches(*objective, w, some);
    }
    EXPECT_EQ(objective->Test(w).loss_sum, expected->Test(w).loss_sum);
    EXPECT_EQ(Hessian(*objective, w), Hessian(*expected, w));
  }
}

TEST(LinearRegressionTest, FullGradientIsThatOfEvaluateToTheLastBit) {
  for (Index n : {12, 40}) {
    auto objective = Make(LinearModel(0.1), Regression(RandomMatrix(n, 30, 1), RandomVector(n, 2)));
    const Vector<double> w = RandomVector(30, 3);
    Vector<double> a(30), b(30);
    objective->Evaluate(w, {}, a);
    objective->FullGradient(w, b);
    EXPECT_EQ(a, b);
  }
}

TEST(LinearRegressionTest, LossDoesNotCancelAtAnExactFit) {
  const Matrix<double> x = RandomMatrix(50, 5, 1);
  const Vector<double> truth = 1e6 * RandomVector(5, 2);
  auto objective = Make(LinearModel(), Regression(x, x * truth));
  Vector<double> gradient(5);
  const double loss = objective->Evaluate(truth, {}, gradient);
  EXPECT_GE(loss, 0);
  EXPECT_LT(loss, 1e-17);  // from w'Aw - 2b'w + y'y it would be about 1e-3
}

// The loss of (X, y) at w, with more digits than it needs.
double ExactLoss(const Matrix<double>& x, const Vector<double>& y, const Vector<double>& w) {
  long double squares = 0;
  for (Index i = 0; i < x.rows(); ++i) {
    long double error = -y[i];
    for (Index j = 0; j < x.cols(); ++j) {
      error += static_cast<long double>(x(i, j)) * static_cast<long double>(w[j]);
    }
    squares += error * error;
  }
  return static_cast<double>(squares / static_cast<long double>(2 * x.rows()));
}

void ExpectExactLoss(const Matrix<double>& x, const Vector<double>& y, const Vector<double>& w,
                     double tolerance) {
  auto objective = Make(LinearModel(0), Regression(x, y));
  Vector<double> gradient(w.size());
  const double loss = ExactLoss(x, y, w);
  EXPECT_NEAR(objective->Evaluate(w, {}, gradient), loss, tolerance * loss);
}

TEST(LinearRegressionTest, LossIsThatOfTheResidualsHoweverFlat) {
  const Vector<double> y = RandomVector(60, 2);
  for (const double scale : {1.0, 1e-1, 1e-2, 1e-3, 1e-5, 0.0}) {
    Matrix<double> x = RandomMatrix(60, 30, 1);
    x.col(7) *= scale;
    for (const double distance : {0.0, 1e-8, 1.0, 1e2, 1e6}) {
      ExpectExactLoss(x, y, RandomVector(30, 3) * distance, 1e-12);
      ExpectExactLoss(x, y, Vector<double>::Unit(30, 7) * distance, 1e-11);
    }
  }
}

TEST(LinearRegressionTest, LossIsThatOfTheResidualsWhereInputsHaveAMean) {
  for (const double mean : {1.0, 10.0, 1e2, 1e3, 1e5, 1e7}) {
    Matrix<double> x = RandomMatrix(50, 2, 1);
    x.array() += mean;
    const Vector<double> y = x.rowwise().sum() + RandomVector(50, 2);
    ExpectExactLoss(x, y, Vector<double>{{1.5, 0.5}}, 1e-9);
    ExpectExactLoss(x, y, Vector<double>{{1.0, 1.0}}, 1e-9);
  }
}

TEST(LinearRegressionTest, LossIsThatOfTheResidualsWithFewerExamplesThanFeatures) {
  const Matrix<double> x = RandomMatrix(29, 30, 1);
  const Vector<double> fit = RandomVector(30, 2);
  auto objective = Make(LinearModel(0), Regression(x, x * fit));
  Vector<double> gradient(30);
  EXPECT_LT(objective->Evaluate(fit, {}, gradient), 1e-28);
}

TEST(LinearRegressionTest, LetsGoOfExamplesThatCanBeMadeAgain) {
  const SyntheticClients clients(SyntheticProblem{.seed = 3});
  const Dataset made = Dataset::Make(clients, 5);
  Dataset from_file = made;
  from_file.make_again = nullptr;
  auto frugal = Make(LinearModel(0.1), made), plain = Make(LinearModel(0.1), from_file);
  const Vector<double> w = RandomVector(30, 4);
  const auto expect_equal = [&](absl::Span<const uint32_t> rows) {
    Vector<double> a(30), b(30);
    EXPECT_EQ(frugal->Evaluate(w, rows, a), plain->Evaluate(w, rows, b));
    EXPECT_EQ(a, b);
  };
  const size_t matrix = 32 * 32 * sizeof(double), examples = 100 * 31 * sizeof(double);
  expect_equal({});
  EXPECT_EQ(plain->held_bytes(), matrix + examples);
  EXPECT_EQ(frugal->held_bytes(), matrix);
  EXPECT_EQ(frugal->examples(), 100u);
  const std::vector<uint32_t> rows{3, 99, 0};
  expect_equal(rows);
  EXPECT_EQ(frugal->held_bytes(), matrix + examples);  // the next batch will need them
  expect_equal({});
  frugal->Release();
  plain->Release();
  EXPECT_EQ(plain->held_bytes(), matrix + examples);
  EXPECT_EQ(frugal->held_bytes(), matrix);
  EXPECT_EQ(frugal->Targets().mean_square, plain->Targets().mean_square);
  expect_equal(rows);
}

// Where the matrix is nearly singular, losses are found from the examples.
TEST(LinearRegressionTest, KeepsExamplesThatLossesNeed) {
  const SyntheticClients clients(SyntheticProblem{.samples = 20, .seed = 3});
  auto objective = Make(LinearModel(0), Dataset::Make(clients, 5));
  Vector<double> gradient(30);
  objective->Evaluate(RandomVector(30, 4), {}, gradient);
  objective->Release();
  EXPECT_GE(objective->held_bytes(), 20 * 31 * sizeof(double));
}

TEST(LinearRegressionTest, LossOfNoNumberIsNone) {
  auto objective = Make(LinearModel(0), Regression(RandomMatrix(60, 30, 1), RandomVector(60, 2)));
  Vector<double> gradient(30);
  const Vector<double> w = Vector<double>::Constant(30, std::nan(""));
  EXPECT_TRUE(std::isnan(objective->Evaluate(w, {}, gradient)));
}

TEST(LinearRegressionTest, TestSumsLossAndCountsNothingCorrect) {
  Dataset data = Regression(RandomMatrix(6, 2, 1), RandomVector(6, 2));
  const Vector<double> w = RandomVector(2, 5);
  EXPECT_EQ(Make(LinearModel(), data)->Test(w).examples, 0u);
  const Matrix<double> x = RandomMatrix(4, 2, 3);
  const Vector<double> y = RandomVector(4, 4);
  data.test = DataPart{Array(x), Array(y)};
  const TestResult result = Make(LinearModel(), data)->Test(w);
  EXPECT_EQ(result.examples, 4u);
  EXPECT_NEAR(result.loss_sum, 0.5 * (x * w - y).squaredNorm(), 1e-14);
  EXPECT_EQ(result.correct, 0u);
}

TEST(LinearRegressionTest, TakesIntegerInputsAndTargets) {
  Dataset data;
  data.id = "c";
  data.train = {Array<int32_t>({2, 1, 2}, {1, 2, 3, 4}), Array<int32_t>({2, 1}, {5, 11})};
  Vector<double> w(2), gradient(2);
  w << 1, 2;
  EXPECT_EQ(Make(LinearModel(), data)->Evaluate(w, {}, gradient), 0);
}

// As for networks: an image saved as bytes is the image saved as floats.
TEST(ConvexModelsTest, BytesAreScaledToOne) {
  Dataset bytes = Classification(9, 4, 3, 1), doubles = bytes;
  std::vector<uint8_t> pixels;
  std::vector<double> scaled;
  for (int i = 0; i < 36; ++i) {
    pixels.push_back(static_cast<uint8_t>(7 * i));
    scaled.push_back(7 * i / 255.0);
  }
  bytes.train.x = Array<uint8_t>({9, 4}, pixels);
  doubles.train.x = Array<double>({9, 4}, scaled);
  for (const v1::Model& model : {LinearModel(), SoftmaxModel(3)}) {
    const Vector<double> w = RandomVector(model.has_linear_regression() ? 4 : 15, 3);
    Vector<double> a(w.size()), b(w.size());
    EXPECT_EQ(Make(model, bytes)->Evaluate(w, {}, a), Make(model, doubles)->Evaluate(w, {}, b));
    EXPECT_EQ(a, b);
  }
}

TEST(SoftmaxRegressionTest, GradientMatchesFiniteDifferences) {
  auto objective = Make(SoftmaxModel(3, 0.2), Classification(20, 4, 3, 1));
  const std::vector<uint32_t> rows = {3, 0, 11};
  ExpectGradientMatches(*objective, RandomVector(15, 3), {});
  ExpectGradientMatches(*objective, RandomVector(15, 3), rows);
}

// Loss and answer of one example, straight from the definition.
std::pair<double, Index> BruteForce(const Vector<double>& w, const Vector<double>& x, int64_t label,
                                    Index classes) {
  Vector<double> logits(classes);
  for (Index k = 0; k < classes; ++k) {
    logits[k] = w[classes * x.size() + k];
    for (Index j = 0; j < x.size(); ++j) logits[k] += w[k * x.size() + j] * x[j];
  }
  Index answer;
  logits.maxCoeff(&answer);
  return {std::log(logits.array().exp().sum()) - logits[label], answer};
}

TEST(SoftmaxRegressionTest, MatchesBruteForce) {
  const Index classes = 5, d = 7, n = 31;
  const Dataset data = Classification(n, d, 5, 1);
  const Matrix<double> x = RandomMatrix(n, d, 1), test_x = RandomMatrix(n + 3, d, 2);
  const auto labels = RandomLabels(n, 5, 1), test_labels = RandomLabels(n + 3, 5, 2);
  const Vector<double> w = RandomVector(classes * (d + 1), 9);
  auto objective = Make(SoftmaxModel(5, 0.1), data);

  double loss = 0;
  for (Index i = 0; i < n; ++i) {
    loss += BruteForce(w, x.row(i), labels[static_cast<size_t>(i)], classes).first;
  }
  Vector<double> gradient(w.size());
  EXPECT_NEAR(objective->Evaluate(w, {}, gradient), loss / n + 0.05 * w.squaredNorm(), 1e-13);

  TestResult expected;
  for (Index i = 0; i < n + 3; ++i) {
    const int64_t label = test_labels[static_cast<size_t>(i)];
    const auto [one, answer] = BruteForce(w, test_x.row(i), label, classes);
    expected.loss_sum += one;
    expected.correct += answer == label ? 1 : 0;
  }
  const TestResult result = objective->Test(w);
  EXPECT_EQ(result.examples, static_cast<uint64_t>(n + 3));
  EXPECT_EQ(result.correct, expected.correct);
  EXPECT_NEAR(result.loss_sum, expected.loss_sum, 1e-12);
}

// More examples than are taken at a time, in the types that files have.
TEST(SoftmaxRegressionTest, LongDataMatchesBruteForceInEveryType) {
  const Index classes = 3, d = 300, n = 700;
  Dataset data = Classification(n, d, 3, 1);
  const Matrix<float> x = RandomMatrix(n, d, 1).cast<float>();
  const auto labels = RandomLabels(n, 3, 1);
  const Vector<double> w = 0.1 * RandomVector(classes * (d + 1), 9);
  double loss = 0;
  for (Index i = 0; i < n; ++i) {
    loss += BruteForce(w, x.row(i).cast<double>(), labels[static_cast<size_t>(i)], classes).first;
  }
  const Matrix<double> wide = x.cast<double>();
  data.train.x = Array(wide);
  Vector<double> a(w.size()), b(w.size()), c(w.size());
  const double doubles = Make(SoftmaxModel(3), data)->Evaluate(w, {}, a);
  EXPECT_NEAR(doubles, loss / n, 1e-12);
  data.train.x = Array<float>({700, 300}, {x.data(), x.data() + x.size()});
  auto objective = Make(SoftmaxModel(3), data);
  EXPECT_EQ(objective->Evaluate(w, {}, b), doubles);
  EXPECT_EQ(a, b);
  std::vector<uint32_t> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0u);
  EXPECT_EQ(objective->Evaluate(w, all, c), doubles);
  EXPECT_EQ(a, c);
}

TEST(SoftmaxRegressionTest, BatchesAverageToTheFullBatch) {
  auto objective = Make(SoftmaxModel(3), Classification(20, 4, 3, 1));
  const Vector<double> w = RandomVector(15, 3);
  Vector<double> full(15), part(15), sum = Vector<double>::Zero(15);
  const double loss = objective->Evaluate(w, {}, full);
  double losses = 0;
  for (uint32_t row = 0; row < 20; row += 5) {
    const std::vector<uint32_t> rows = {row, row + 1, row + 2, row + 3, row + 4};
    losses += objective->Evaluate(w, rows, part);
    sum += part;
  }
  EXPECT_NEAR(losses / 4, loss, 1e-13);
  EXPECT_NEAR((sum / 4 - full).norm(), 0, 1e-13);
}

TEST(SoftmaxRegressionTest, SmoothnessHoldsAtEveryModel) {
  for (const uint32_t classes : {2u, 5u}) {
    auto objective = Make(SoftmaxModel(classes, 0.1), Classification(40, 6, classes, 5));
    const double everywhere = objective->SmoothnessEverywhere().value();
    const auto size = static_cast<Index>(classes) * 7;
    const double at_zero = SpectrumOf(*objective, Vector<double>::Zero(size)).largest;
    // Two classes reach it where both are equally likely.
    if (classes == 2) {
      EXPECT_NEAR(everywhere, at_zero, 1e-6 * at_zero);
    }
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      const Vector<double> w = static_cast<double>(seed) / 10 * RandomVector(size, seed);
      EXPECT_LE(SpectrumOf(*objective, w).largest, everywhere * (1 + 1e-6)) << seed;
    }
  }
}

TEST(SoftmaxRegressionTest, TheStartMayBendLessThanTheWay) {
  // Ten classes of which two are seen: at w = 0 each has probability 1/10, on the way 1/2.
  Dataset data = Classification(40, 6, 2, 5);
  auto objective = Make(SoftmaxModel(10, 0), data);
  Vector<double> w = Vector<double>::Zero(70);
  const double at_start = SpectrumOf(*objective, w).largest;
  w.tail(8).array() = -30;  // only the two that are seen
  const double on_the_way = SpectrumOf(*objective, w).largest;
  EXPECT_GT(on_the_way, 4 * at_start);
  EXPECT_GE(objective->SmoothnessEverywhere().value(), on_the_way * (1 - 1e-6));
}

TEST(SoftmaxRegressionTest, HugeLogitsStayFinite) {
  auto objective = Make(SoftmaxModel(3), Classification(20, 4, 3, 1));
  Vector<double> gradient(15);
  const double loss = objective->Evaluate(1e6 * RandomVector(15, 3), {}, gradient);
  EXPECT_TRUE(std::isfinite(loss));
  EXPECT_TRUE(gradient.allFinite());
}

TEST(SoftmaxRegressionTest, IntegralFloatsAreLabels) {
  Dataset data = Classification(3, 2, 3, 1);
  Vector<double> y(3);
  y << 0, 2, 1;
  data.train.y = Array(y);
  EXPECT_TRUE(MakeObjective(SoftmaxModel(3), data).ok());
}

TEST(MakeObjectiveTest, RefusalsNameTheClientAndTheReason) {
  Dataset fraction = Classification(3, 2, 3, 1), negative = fraction, large = fraction,
          test = fraction;
  Vector<double> y(3);
  y << 0, 1, 1.5;
  fraction.train.y = Array(y);
  negative.train.y = Labels({0, -1, 2});
  large.train.y = Labels({3, 0, 1});
  test.test->y = Labels({0, 0, 0, 7, 0, 0});
  const struct {
    v1::Model model;
    const Dataset& data;
    std::string message;
  } cases[] = {
      {SoftmaxModel(3), fraction, "train_y.npy: the label in row 2 (counted from 0) is 1.5"},
      {SoftmaxModel(3), negative, "row 1 (counted from 0) is -1"},
      {SoftmaxModel(3), large, "row 0 (counted from 0) is 3, expected an integer from 0 to 2"},
      {SoftmaxModel(3), test, "test_y.npy: the label in row 3 "},
      {SoftmaxModel(1), large, "softmax_regression.classes"},
      {v1::Model(), large, "model.kind"},
  };
  for (const auto& c : cases) {
    const auto objective = MakeObjective(c.model, c.data);
    EXPECT_EQ(objective.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(objective.status().message(), HasSubstr("client \"client-7\""));
    EXPECT_THAT(objective.status().message(), HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace leeway
