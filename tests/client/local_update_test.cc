#include "client/local_update.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/client/synthetic.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_data::LinearModel;
using testing_data::Make;
using testing_data::RandomMatrix;
using testing_data::RandomVector;
using testing_data::Regression;
using Index = Eigen::Index;

v1::Task Task(const std::string& text) {
  v1::Task task;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &task)) << text;
  return task;
}

Rng Stream(uint64_t seed = 1) { return Rng(seed, 1, 1, Purpose::kBatchOrder); }

template <typename T>
ClientReport<T> Answer(Objective<T>& objective, const v1::Task& task, const Vector<T>& start,
                       uint64_t seed = 1) {
  auto report = RunTask<T>(objective, task, start, Stream(seed));
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *std::move(report) : ClientReport<T>();
}

template <typename T>
Vector<T> Part(const ClientReport<T>& report, int index, Index size) {
  return Eigen::Map<const Vector<T>>(report.vectors.data() + index * size, size);
}

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
  const ClientReport<double> report = Answer(
      *objective,
      Task("rule { step_size: 0.1 steps: 50 } full_step: true drift_steps: [ 2, 10, 50 ]"), w);

  const Eigen::MatrixXd identity = Eigen::MatrixXd::Identity(d, d);
  const Eigen::MatrixXd hessian = x.transpose() * x / static_cast<double>(n) + 0.1 * identity;
  const Vector<double> g = hessian * w - x.transpose() * y / static_cast<double>(n);
  EXPECT_NEAR((Part(report, 0, d) - 0.1 * g).norm(), 0, 1e-14);
  EXPECT_NEAR(report.scalars[2], g.squaredNorm(), 1e-12 * g.squaredNorm());
  const int steps[] = {2, 10, 50};
  for (int k = 0; k < 3; ++k) {
    Eigen::MatrixXd power = identity, p = Eigen::MatrixXd::Zero(d, d);
    for (int h = 0; h < steps[k]; ++h) {
      p += (identity - power) / steps[k];
      power *= identity - 0.1 * hessian;
    }
    const Vector<double> bias = p * g;
    EXPECT_LT((Part(report, 1 + k, d) / 0.1 - bias).norm(), 1e-10 * bias.norm()) << steps[k];
    EXPECT_NEAR(report.scalars[static_cast<size_t>(3 + k)], bias.squaredNorm(),
                1e-10 * bias.squaredNorm());
  }
}

TEST(LocalUpdateTest, OneFullStepHasExactlyNoDrift) {
  const Index d = 5;
  auto objective = Make(LinearModel(), Regression(RandomMatrix(20, d, 1), RandomVector(20, 2)));
  const ClientReport<double> report = Answer(
      *objective,
      Task("rule { step_size: 0.3 steps: 1 } displacement: true full_step: true drift_steps: 0"),
      RandomVector(d, 3));
  EXPECT_EQ(Part(report, 0, d), Part(report, 1, d));
  EXPECT_EQ(Part(report, 2, d), Vector<double>::Zero(d));
  EXPECT_EQ(report.scalars[3], 0);
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
    const ClientReport<double> report =
        Answer(*objective,
               Task("rule { step_size: 0.1 steps: 20 } full_step: true drift_steps: 20"), optimum);
    average += Part(report, 1, d) / (0.1 * clients);
    dissimilarity += report.scalars[2] / clients;
    bound += report.scalars[3] / clients;
  }
  EXPECT_GT(dissimilarity, 1e4);
  EXPECT_GT(bound, 1e3);
  EXPECT_LT(average.squaredNorm(), 1e-20 * bound);
}

TEST(LocalUpdateTest, BatchesCoverEachRowOncePerPass) {
  Recorder<double> objective(10);
  Answer(objective, Task("rule { step_size: 0.1 epochs: 3 batch_size: 4 } displacement: true"),
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
  Answer(objective, Task("rule { step_size: 0.1 steps: 5 batch_size: 4 } displacement: true"),
         RandomVector(3, 1));
  EXPECT_EQ(objective.batches.size(), 5u);
  EXPECT_EQ(objective.full, 1);  // the loss at the start
}

TEST(LocalUpdateTest, OrderOfBatchesIsNamedByTheStream) {
  const auto batches = [](uint64_t seed) {
    Recorder<double> objective(10);
    Answer(objective, Task("rule { step_size: 0.1 epochs: 1 batch_size: 3 } displacement: true"),
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
    const ClientReport<double> report = Answer(
        objective, Task(absl::StrCat("rule { step_size: 0.5 ", rule, " } displacement: true")), w);
    EXPECT_TRUE(objective.batches.empty());
    EXPECT_EQ(objective.full, 4) << rule;
    // w^(4) = w / 2^4, exactly.
    EXPECT_EQ(Part(report, 0, 3), w - w / 16);
  }
}

TEST(LocalUpdateTest, FullStepAloneTakesNoSteps) {
  Recorder<double> objective(10);
  const Vector<double> w = RandomVector(3, 1);
  for (const char* rule : {"step_size: 0.5", "step_size: 0.5 steps: 9"}) {
    objective.full = 0;
    const ClientReport<double> report =
        Answer(objective, Task(absl::StrCat("rule { ", rule, " } full_step: true")), w);
    EXPECT_EQ(objective.full, 1);
    EXPECT_EQ(Part(report, 0, 3), 0.5 * w);
    const double loss = 0.5 * w.squaredNorm();
    EXPECT_THAT(report.scalars, ElementsAre(loss, loss * loss, w.squaredNorm()));
  }
}

TEST(LocalUpdateTest, EvaluationAloneDoesNotTouchTrainingData) {
  Recorder<double> objective(10);
  const ClientReport<double> report =
      Answer(objective, Task("evaluate: true weighting: EXAMPLES"), RandomVector(3, 1));
  EXPECT_EQ(objective.full, 0);
  EXPECT_THAT(report.scalars, ElementsAre(10, 2.5, 7));
  EXPECT_TRUE(report.vectors.empty());
  EXPECT_EQ(report.weight, 10u);
}

TEST(LocalUpdateTest, WeightIsOneOrTheNumberOfExamples) {
  Recorder<double> objective(10);
  const auto weight = [&](const char* weighting) {
    return Answer(
               objective,
               Task(absl::StrCat("rule { step_size: 1 } full_step: true weighting: ", weighting)),
               RandomVector(3, 1))
        .weight;
  };
  EXPECT_EQ(weight("UNIFORM"), 1u);
  EXPECT_EQ(weight("EXAMPLES"), 10u);
}

TEST(LocalUpdateTest, StochasticDriftStartsFromTheFullGradient) {
  const Index d = 3;
  auto objective = Make(LinearModel(), Regression(RandomMatrix(9, d, 1), RandomVector(9, 2)));
  const ClientReport<double> report =
      Answer(*objective,
             Task("rule { step_size: 0.01 epochs: 2 batch_size: 2 } displacement: true "
                  "full_step: true drift_steps: 0"),
             RandomVector(d, 3));
  const Vector<double> expected = Part(report, 1, d) - Part(report, 0, d) / 10.0;
  EXPECT_EQ(Part(report, 2, d), expected);
  EXPECT_GT(report.scalars[3], 0);
}

TEST(LocalUpdateTest, Float32ReportsInFloat32) {
  Recorder<float> objective(10);
  Vector<float> w(2);
  w << 1.0f, -3.0f;
  const ClientReport<float> report =
      Answer(objective,
             Task("rule { step_size: 0.1 steps: 2 } displacement: true full_step: true "
                  "drift_steps: [ 1, 2 ]"),
             w);
  const Vector<float> first = 0.1f * w;
  const Vector<float> second = first + 0.1f * Vector<float>(w - first);
  EXPECT_EQ(Part(report, 0, 2), second);
  EXPECT_EQ(Part(report, 1, 2), first);
  EXPECT_EQ(Part(report, 2, 2), Vector<float>::Zero(2));
  EXPECT_EQ(Part(report, 3, 2), Vector<float>(first - second / 2.0f));
  const Vector<double> drift = Part(report, 3, 2).cast<double>();
  EXPECT_NEAR(report.scalars[4], drift.squaredNorm() / 0.01, 1e-15);
}

TEST(LocalUpdateTest, RefusesImpossibleTasksByField) {
  Recorder<double> objective(10);
  const struct {
    std::string task, message;
  } cases[] = {
      {"rule { step_size: 0 steps: 1 } displacement: true", "step_size"},
      {"rule { step_size: -1 steps: 1 } displacement: true", "step_size"},
      {"rule { step_size: nan } full_step: true", "step_size"},
      {"rule { step_size: 1 } displacement: true", "rule.steps"},
      {"rule { step_size: 1 steps: 1 epochs: 1 } displacement: true", "give one of them"},
      {"rule { step_size: 1 steps: 5 } drift_steps: [ 1, 6 ]", "drift_steps is {1, 6}"},
      {"rule { step_size: 1 steps: 5 } drift_steps: [ 3, 3 ]", "drift_steps"},
      {"rule { step_size: 1 steps: 5 } drift_steps: [ 0, 3 ]", "drift_steps"},
      {"rule { step_size: 1 } drift_steps: 0", "rule.steps"},
  };
  for (const auto& c : cases) {
    const auto report = RunTask<double>(objective, Task(c.task), RandomVector(3, 1), Stream());
    EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument) << c.task;
    EXPECT_THAT(report.status().message(), HasSubstr(c.message));
  }
}

TEST(LocalUpdateTest, DivergenceNamesTheStepAndTheRemedy) {
  Recorder<double> objective(10);
  const Vector<double> w = Vector<double>::Ones(2);
  const auto report = RunTask<double>(
      objective, Task("rule { step_size: 1e160 steps: 9 } displacement: true"), w, Stream());
  EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(report.status().message(), HasSubstr("after local step 2 "));
  EXPECT_THAT(report.status().message(), HasSubstr("lower step_size"));
  const Vector<double> nan = Vector<double>::Constant(2, std::nan(""));
  EXPECT_THAT(RunTask<double>(objective, Task("evaluate: true"), nan, Stream()).status().message(),
              HasSubstr("model to start from is not finite"));
}

}  // namespace
}  // namespace leeway
