#include "client/local_update.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/client/synthetic.h"
#include "tests/named_report.h"

namespace leeway {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing_data::LinearModel;
using testing_data::Make;
using testing_data::RandomMatrix;
using testing_data::RandomVector;
using testing_data::Regression;
using Index = Eigen::Index;

// A task with this rule that asks for these sums: "drift@2" is the drift after 2 steps.
v1::Task Task(const std::string& rule, const std::vector<std::string>& sums,
              v1::Weighting weighting = v1::UNIFORM) {
  v1::Task task;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(rule, task.mutable_rule())) << rule;
  task.set_weighting(weighting);
  for (const std::string& sum : sums) {
    const std::vector<std::string> parts = absl::StrSplit(sum, '@');
    Ask(parts[0], task, parts.size() > 1 ? static_cast<uint32_t>(std::stoul(parts[1])) : 0);
  }
  return task;
}

Rng Stream(uint64_t seed = 1) { return Rng(seed, 1, 1, Purpose::kBatchOrder); }

// What a client answers to a task, by name.
template <typename T>
class Answered {
 public:
  Answered(Objective<T>& objective, const v1::Task& task, const Vector<T>& start, uint64_t seed = 1)
      : sums_(task, static_cast<size_t>(start.size())), report_(sums_) {
    auto report = RunTask<T>(objective, task, start, Stream(seed));
    EXPECT_TRUE(report.ok()) << report.status();
    if (report.ok()) report_.report() = *std::move(report);
  }
  Answered(const Answered&) = delete;  // report_ refers to sums_

  double number(absl::string_view name, uint32_t steps = 0) const {
    return report_.number(name, steps);
  }
  Vector<T> vector(absl::string_view name, uint32_t steps = 0) const {
    return report_.vector(name, steps);
  }
  const ClientReport<T>& report() const { return report_.report(); }

 private:
  const TaskSums sums_;
  NamedReport<T> report_;
};

// 1/2 |w - center|^2 on every row; remembers which rows were asked for.
template <typename T>
class Recorder final : public Objective<T> {
 public:
  explicit Recorder(uint64_t examples) : examples_(examples) {}
  uint64_t examples() const override { return examples_; }
  double Evaluate(ConstVectorRef<T> w, absl::Span<const uint32_t> rows,
                  VectorRef<T> gradient) override {
    if (rows.empty()) {
      ++full;
    } else {
      batches.emplace_back(rows.begin(), rows.end());
    }
    gradient = w;
    return 0.5 * static_cast<double>(w.squaredNorm());
  }
  TestResult Test(ConstVectorRef<T>) override { return {10, 2.5, 7}; }

  std::vector<std::vector<uint32_t>> batches;
  int full = 0;

 private:
  const uint64_t examples_;
};

TEST(LocalUpdateTest, DriftIsTheClosedFormOfQuadratics) {
  // Paper, Lemma 2: B_c = P_c g_c, P_c = 1/H sum_{h<H} [I - (I - eta A)^h].
  const Index n = 60, d = 8;
  const Matrix<double> x = RandomMatrix(n, d, 1);
  const Vector<double> y = RandomVector(n, 2), w = RandomVector(d, 3);
  auto objective = Make(LinearModel(0.1), Regression(x, y));
  const Answered<double> report(
      *objective,
      Task("step_size: 0.1 steps: 50",
           {"loss", "gradient", "gradient_squared", "drift@2", "drift_squared@2", "drift@10",
            "drift_squared@10", "drift@50", "drift_squared@50"}),
      w);

  const Eigen::MatrixXd identity = Eigen::MatrixXd::Identity(d, d);
  const Eigen::MatrixXd hessian = x.transpose() * x / static_cast<double>(n) + 0.1 * identity;
  const Vector<double> g = hessian * w - x.transpose() * y / static_cast<double>(n);
  EXPECT_NEAR((report.vector(kGradient) - g).norm(), 0, 1e-13);
  EXPECT_NEAR(report.number(kGradientSquared), g.squaredNorm(), 1e-12 * g.squaredNorm());
  for (const uint32_t steps : {2u, 10u, 50u}) {
    Eigen::MatrixXd power = identity, p = Eigen::MatrixXd::Zero(d, d);
    for (uint32_t h = 0; h < steps; ++h) {
      p += (identity - power) / steps;
      power *= identity - 0.1 * hessian;
    }
    const Vector<double> bias = p * g;
    EXPECT_LT((report.vector(kDrift, steps) - bias).norm(), 1e-10 * bias.norm()) << steps;
    EXPECT_NEAR(report.number(kDriftSquared, steps), bias.squaredNorm(),
                1e-10 * bias.squaredNorm());
  }
}

TEST(LocalUpdateTest, OneFullStepHasExactlyNoDrift) {
  const Index d = 5;
  auto objective = Make(LinearModel(), Regression(RandomMatrix(20, d, 1), RandomVector(20, 2)));
  const Answered<double> report(*objective,
                                Task("step_size: 0.3 steps: 1", {"loss", "displacement", "gradient",
                                                                 "drift", "drift_squared"}),
                                RandomVector(d, 3));
  EXPECT_EQ(report.vector(kDisplacement), 0.3 * report.vector(kGradient));
  EXPECT_EQ(report.vector(kDrift), Vector<double>::Zero(d));
  EXPECT_EQ(report.number(kDriftSquared), 0);
}

TEST(LocalUpdateTest, EqualHessiansCancelAverageDriftHoweverDissimilar) {
  // The paper's point: at w* the g_c cancel, hence with one P so do the P g_c.
  const Index n = 40, d = 6;
  const Matrix<double> x = RandomMatrix(n, d, 1);
  const Vector<double> y = RandomVector(n, 2);
  const Vector<double> optimum =
      (x.transpose() * x).ldlt().solve(Vector<double>(x.transpose() * y));
  Vector<double> average = Vector<double>::Zero(d);
  double dissimilarity = 0, bound = 0;
  const int clients = 4;
  for (int c = 0; c < clients; ++c) {
    // Offsets that sum to zero move each client's own optimum far away.
    const double sign = c % 2 == 0 ? 100 : -100;
    const Vector<double> offset = sign * RandomVector(d, static_cast<uint64_t>(10 + c / 2));
    auto objective = Make(LinearModel(), Regression(x, y + x * offset));
    const Answered<double> report(
        *objective,
        Task("step_size: 0.1 steps: 20",
             {"loss", "gradient", "gradient_squared", "drift@20", "drift_squared@20"}),
        optimum);
    average += report.vector(kDrift, 20) / clients;
    dissimilarity += report.number(kGradientSquared) / clients;
    bound += report.number(kDriftSquared, 20) / clients;
  }
  EXPECT_GT(dissimilarity, 1e4);
  EXPECT_GT(bound, 1e3);
  EXPECT_LT(average.squaredNorm(), 1e-20 * bound);
}

TEST(LocalUpdateTest, BatchesCoverEachRowOncePerPass) {
  Recorder<double> objective(10);
  Answered(objective, Task("step_size: 0.1 epochs: 3 batch_size: 4", {"loss", "displacement"}),
           RandomVector(3, 1));
  ASSERT_EQ(objective.batches.size(), 9u);
  std::vector<std::vector<uint32_t>> passes;
  for (size_t pass = 0; pass < 3; ++pass) {
    std::vector<uint32_t> rows;
    for (size_t k = 0; k < 3; ++k) {
      const auto& batch = objective.batches[3 * pass + k];
      EXPECT_EQ(batch.size(), k < 2 ? 4u : 2u);
      rows.insert(rows.end(), batch.begin(), batch.end());
    }
    passes.push_back(rows);
    std::sort(rows.begin(), rows.end());
    std::vector<uint32_t> all(10);
    std::iota(all.begin(), all.end(), 0u);
    EXPECT_EQ(rows, all);
  }
  EXPECT_NE(passes[0], passes[1]);
  EXPECT_NE(passes[1], passes[2]);
}

TEST(LocalUpdateTest, StepsAreCountedExactlyAcrossPasses) {
  Recorder<double> objective(10);
  Answered(objective, Task("step_size: 0.1 steps: 5 batch_size: 4", {"loss", "displacement"}),
           RandomVector(3, 1));
  EXPECT_EQ(objective.batches.size(), 5u);
  EXPECT_EQ(objective.full, 1);  // the loss at the start
}

TEST(LocalUpdateTest, OrderOfBatchesIsNamedByTheStream) {
  const auto batches = [](uint64_t seed) {
    Recorder<double> objective(10);
    Answered(objective, Task("step_size: 0.1 epochs: 1 batch_size: 3", {"loss", "displacement"}),
             RandomVector(3, 1), seed);
    return objective.batches;
  };
  EXPECT_EQ(batches(1), batches(1));
  EXPECT_NE(batches(1), batches(2));
}

TEST(LocalUpdateTest, FullBatchTakesOneStepPerEpochAndReusesTheFirstGradient) {
  for (const char* rule :
       {"epochs: 4", "steps: 4", "epochs: 4 batch_size: 10", "steps: 4 batch_size: 99"}) {
    Recorder<double> objective(10);
    const Vector<double> w = RandomVector(3, 1);
    const Answered<double> report(
        objective, Task(absl::StrCat("step_size: 0.5 ", rule), {"loss", "displacement"}), w);
    EXPECT_TRUE(objective.batches.empty());
    EXPECT_EQ(objective.full, 4) << rule;
    // w^(4) = w / 2^4, exactly.
    EXPECT_EQ(report.vector(kDisplacement), w - w / 16);
  }
}

TEST(LocalUpdateTest, AGradientAloneTakesNoSteps) {
  Recorder<double> objective(10);
  const Vector<double> w = RandomVector(3, 1);
  for (const char* rule : {"", "step_size: 0.5", "step_size: 0.5 steps: 9"}) {
    objective.full = 0;
    const Answered<double> report(
        objective, Task(rule, {"loss", "loss_squared", "gradient", "gradient_squared"}), w);
    EXPECT_EQ(objective.full, 1);
    EXPECT_EQ(report.vector(kGradient), w);
    EXPECT_EQ(report.number(kLoss), 0.5 * w.squaredNorm());
    EXPECT_EQ(report.number(kLossSquared), std::pow(0.5 * w.squaredNorm(), 2));
    EXPECT_NEAR(report.number(kGradientSquared), w.squaredNorm(), 1e-15 * w.squaredNorm());
  }
}

TEST(LocalUpdateTest, EvaluationAloneDoesNotTouchTrainingData) {
  Recorder<double> objective(10);
  const Answered<double> report(
      objective, Task("", {"test_examples", "test_loss", "test_correct"}, v1::EXAMPLES),
      RandomVector(3, 1));
  EXPECT_EQ(objective.full, 0);
  EXPECT_EQ(report.number(kTestExamples), 10);
  EXPECT_EQ(report.number(kTestLoss), 2.5);
  EXPECT_EQ(report.number(kTestCorrect), 7);
  EXPECT_TRUE(report.report().vectors.empty());
  EXPECT_EQ(report.report().weight, 10u);
}

TEST(LocalUpdateTest, CountsAreOneAboveTheirThresholdAndNoughtElsewhere) {
  Recorder<double> objective(10);  // 7 of 10 are right, with a loss of 0.25 each
  v1::Task task = Task("", {"test_examples", "test_loss", "test_correct"});
  for (const double threshold : {-1.0, 0.6, 0.7, 0.8}) AskAbove(kAccuracyAbove, threshold, task);
  Ask(kTestCorrect, task);  // asked for already
  for (const double threshold : {0.24, 0.25}) AskAbove(kTestLossAbove, threshold, task);
  const Answered<double> report(objective, task, RandomVector(3, 1));
  EXPECT_THAT(report.report().numbers, ElementsAre(10, 2.5, 7, 1, 1, 0, 0, 1, 0));
}

TEST(LocalUpdateTest, WeightIsOneOrTheNumberOfExamples) {
  Recorder<double> objective(10);
  for (const v1::Weighting weighting : {v1::UNIFORM, v1::EXAMPLES}) {
    const Answered<double> report(
        objective, Task("", {"loss", "gradient", "weight", "weighted_loss"}, weighting),
        RandomVector(3, 1));
    const double weight = weighting == v1::UNIFORM ? 1 : 10;
    EXPECT_EQ(static_cast<double>(report.report().weight), weight);
    EXPECT_EQ(report.number(kWeight), weight);
    EXPECT_EQ(report.number(kWeightedLoss), weight * report.number(kLoss));
  }
}

TEST(LocalUpdateTest, StochasticDriftStartsFromTheFullGradient) {
  const Index d = 3;
  auto objective = Make(LinearModel(), Regression(RandomMatrix(9, d, 1), RandomVector(9, 2)));
  const Answered<double> report(
      *objective,
      Task("step_size: 0.01 epochs: 2 batch_size: 2",
           {"loss", "displacement", "gradient", "drift", "drift_squared"}),
      RandomVector(d, 3));
  const Vector<double> expected =
      (0.01 * report.vector(kGradient) - report.vector(kDisplacement) / 10.0) / 0.01;
  EXPECT_EQ(report.vector(kDrift), expected);
  EXPECT_GT(report.number(kDriftSquared), 0);
}

TEST(LocalUpdateTest, Float32ReportsInFloat32) {
  Recorder<float> objective(10);
  Vector<float> w(2);
  w << 1.0f, -3.0f;
  const Answered<float> report(
      objective,
      Task("step_size: 0.1 steps: 2",
           {"loss", "displacement", "gradient", "drift@1", "drift@2", "drift_squared@2"}),
      w);
  const Vector<float> first = 0.1f * w;
  const Vector<float> second = first + 0.1f * Vector<float>(w - first);
  EXPECT_EQ(report.vector(kDisplacement), second);
  EXPECT_EQ(report.vector(kGradient), w);
  EXPECT_EQ(report.vector(kDrift, 1), Vector<float>::Zero(2));
  EXPECT_EQ(report.vector(kDrift, 2), Vector<float>((first - second / 2.0f) / 0.1f));
  const Vector<double> drift = report.vector(kDrift, 2).cast<double>();
  EXPECT_NEAR(report.number(kDriftSquared, 2), drift.squaredNorm(), 1e-15);
}

// The order of a task's sums is its own affair.
TEST(LocalUpdateTest, SumsComeInWhateverOrderTheTaskHas) {
  auto objective = Make(LinearModel(), Regression(RandomMatrix(20, 4, 1), RandomVector(20, 2)));
  const std::vector<std::string> names = {
      "loss",    "loss_squared",    "displacement",  "gradient",  "drift@2",
      "drift@3", "drift_squared@3", "test_examples", "test_loss", "test_correct"};
  const std::vector<std::string> reversed(names.rbegin(), names.rend());
  const char rule[] = "step_size: 0.1 steps: 3 batch_size: 6";
  std::vector<std::string> shuffled = reversed;
  std::swap(*std::find(shuffled.begin(), shuffled.end(), "drift@2"),
            *std::find(shuffled.begin(), shuffled.end(), "drift@3"));  // these increase
  const v1::Task task = Task(rule, names);
  const Answered<double> one(*objective, task, RandomVector(4, 3));
  const Answered<double> other(*objective, Task(rule, shuffled), RandomVector(4, 3));
  for (const v1::Sum& sum : task.sums()) {
    if (sum.shape() == v1::NUMBER) {
      EXPECT_EQ(one.number(sum.name(), sum.steps()), other.number(sum.name(), sum.steps()));
    } else {
      EXPECT_EQ(one.vector(sum.name(), sum.steps()), other.vector(sum.name(), sum.steps()));
    }
  }
}

// Any part of a task alone has the value that it has in the whole.
TEST(LocalUpdateTest, EverySumCanBeAskedForAlone) {
  Dataset data = Regression(RandomMatrix(20, 4, 1), RandomVector(20, 2));
  data.test =
      DataPart{testing_data::Array(RandomMatrix(7, 4, 4)), testing_data::Array(RandomVector(7, 5))};
  auto objective = Make(LinearModel(0.1), data);
  const char rule[] = "step_size: 0.1 steps: 4 batch_size: 6";
  const auto with_repeats = [&](const std::vector<std::string>& names) {
    v1::Task task = Task(rule, names, v1::EXAMPLES);
    task.set_repeats(3);
    return task;
  };
  const std::vector<std::vector<std::string>> parts = {{"loss"},
                                                       {"gradient"},
                                                       {"displacement"},
                                                       {"drift@2"},
                                                       {"drift@2", "iterate_bias_squared@2"},
                                                       {"drift@2", "pseudo_gradient_variance@2"},
                                                       {"test_examples"},
                                                       {"test_loss"},
                                                       {"test_correct"},
                                                       {"weight"}};
  std::vector<std::string> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  const Answered<double> whole(*objective, with_repeats(all), RandomVector(4, 3));
  for (const auto& part : parts) {
    const v1::Task task = with_repeats(part);
    const Answered<double> alone(*objective, task, RandomVector(4, 3));
    for (const v1::Sum& sum : task.sums()) {
      if (sum.shape() == v1::NUMBER) {
        const double value = alone.number(sum.name(), sum.steps());
        EXPECT_EQ(value, whole.number(sum.name(), sum.steps())) << sum.name();
        EXPECT_TRUE(value != 0 || sum.name() == kTestCorrect) << sum.name();
      } else {
        EXPECT_EQ(alone.vector(sum.name(), sum.steps()), whole.vector(sum.name(), sum.steps()));
        EXPECT_GT(alone.vector(sum.name(), sum.steps()).norm(), 0) << sum.name();
      }
    }
  }
  v1::Task count;
  AskAbove(kTestLossAbove, 0, count);
  EXPECT_THAT(Answered<double>(*objective, count, RandomVector(4, 3)).report().numbers,
              ElementsAre(1));
}

TEST(LocalUpdateTest, RefusesImpossibleTasksByField) {
  Recorder<double> objective(10);
  const struct {
    std::string rule;
    std::vector<std::string> sums;
    std::string message;
  } cases[] = {
      {"step_size: 0 steps: 1", {"loss", "displacement"}, "step_size"},
      {"step_size: -1 steps: 1", {"loss", "displacement"}, "step_size"},
      {"step_size: nan steps: 1", {"loss", "drift"}, "step_size"},
      {"step_size: 1", {"loss", "displacement"}, "rule.steps"},
      {"step_size: 1 steps: 1 epochs: 1", {"loss", "displacement"}, "give one of them"},
      {"step_size: 1 steps: 5", {"loss", "drift@1", "drift@6"}, "drift after {1, 6} steps"},
      {"step_size: 1 steps: 5", {"loss", "drift@3", "drift@2"}, "drift after {3, 2} steps"},
      {"step_size: 1 steps: 5", {"loss", "drift", "drift@3"}, "drift after {0, 3} steps"},
      {"step_size: 1", {"loss", "drift"}, "rule.steps"},
  };
  for (const auto& c : cases) {
    const auto report =
        RunTask<double>(objective, Task(c.rule, c.sums), RandomVector(3, 1), Stream());
    EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument) << c.rule;
    EXPECT_THAT(report.status().message(), HasSubstr(c.message));
  }
}

TEST(LocalUpdateTest, AMetricIsRefusedRatherThanReportedAsZero) {
  Recorder<double> objective(10);
  const auto report =
      RunTask<double>(objective, Task("step_size: 0.1 steps: 1", {"loss", "metric/auc"}),
                      RandomVector(3, 1), Stream());
  EXPECT_EQ(report.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(report.status().message(), HasSubstr("the metric 'auc'"));
}

TEST(LocalUpdateTest, DivergenceNamesTheStepAndTheRemedy) {
  Recorder<double> objective(10);
  const Vector<double> w = Vector<double>::Ones(2);
  const auto report = RunTask<double>(
      objective, Task("step_size: 1e160 steps: 9", {"loss", "displacement"}), w, Stream());
  EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(report.status().message(), HasSubstr("after local step 2"));
  EXPECT_THAT(report.status().message(), HasSubstr("lower step_size"));
  const Vector<double> nan = Vector<double>::Constant(2, std::nan(""));
  const v1::Task tests = Task("", {"test_examples"});
  EXPECT_THAT(RunTask<double>(objective, tests, nan, Stream()).status().message(),
              HasSubstr("model to start from is not finite"));
}

// A displacement that is finite, but too large to be reported: the step size is to blame
// if local steps diverge, and else it is left to whoever takes the report.
TEST(LocalUpdateTest, AStepSizeThatIsTooLargeIsNamedWithTheLargestSafeOne) {
  Matrix<double> x(4, 1);
  x << 2, 2, 2, 2;  // L = 4
  auto objective = Make(LinearModel(), Regression(x, Vector<double>::Constant(4, 8)));
  const Vector<double> w = Vector<double>::Zero(1);
  const auto answer = [&](const std::string& rule, double largest, double max_norm) {
    v1::Task task = Task(rule, {"loss", "displacement"});
    for (v1::Sum& sum : *task.mutable_sums()) {
      if (sum.name() == kDisplacement) sum.set_largest(largest);
    }
    task.set_max_norm(max_norm);
    return RunTask<double>(*objective, task, w, Stream()).status();
  };
  const absl::Status refused = answer("step_size: 100 steps: 3", 256, 0);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("the step size 100 is too large: above 2/L = 0.5"),
                                       HasSubstr("the largest that is safe is 1/L = 0.25"),
                                       HasSubstr("auto_step_size"), Not(HasSubstr("data"))));
  EXPECT_TRUE(answer("step_size: 0.25 steps: 3", 1, 0).ok());   // too far, but not diverging
  EXPECT_TRUE(answer("step_size: 100 steps: 3", 256, 1).ok());  // a norm limit comes after
  EXPECT_TRUE(answer("step_size: 100 steps: 1", 4096, 0).ok());
}

}  // namespace
}  // namespace leeway
