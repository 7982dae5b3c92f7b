// Random strongly convex federations whose constants are known, and what the
// paper's lemmas speak of, computed by the real local updates.
#ifndef LEEWAY_TESTS_CONVEX_PROBLEMS_H_
#define LEEWAY_TESTS_CONVEX_PROBLEMS_H_

#include <gtest/gtest.h>

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/local_update.h"
#include "client/objective.h"
#include "common/rng.h"
#include "tests/client/synthetic.h"
#include "tests/named_report.h"
#include "tests/simulated_federation.h"

namespace leeway {

using ObjectivePtr = std::unique_ptr<Objective<double>>;

struct Problem {
  std::string name;
  Eigen::Index dimension = 0;
  double smoothness = 0;   // L: of every client
  double convexity = 0;    // mu: of every client
  double third_order = 0;  // Q: Lipschitz constant of every Hessian
  std::vector<ObjectivePtr> clients;
};

inline Problem RandomQuadratics(uint64_t seed) {
  Rng rng(seed, 1, 0, Purpose::kTest);
  Problem problem;
  problem.name = "quadratic " + std::to_string(seed);
  problem.dimension = 5;
  problem.smoothness = 8;
  problem.convexity = 0.4;
  for (int c = 0; c < 6; ++c) {
    problem.clients.push_back(std::make_unique<QuadraticObjective>(
        RandomHessian(5, problem.convexity, problem.smoothness, rng), RandomVector(5, rng)));
  }
  return problem;
}

// Two-class logistic regression with intercept and penalty, on inputs whose scale
// and labels whose rule differ from client to client.
inline Problem RandomLogistic(uint64_t seed) {
  constexpr Eigen::Index kRows = 12;
  constexpr Eigen::Index kFeatures = 2;
  constexpr double kL2 = 0.1;
  Rng rng(seed, 2, 0, Purpose::kTest);
  Problem problem;
  problem.name = "logistic " + std::to_string(seed);
  problem.dimension = 2 * (kFeatures + 1);
  problem.convexity = kL2;
  for (int c = 0; c < 6; ++c) {
    const double scale = 0.5 + 2 * rng.Uniform();
    const Eigen::VectorXd rule = testing_data::RandomVector(kFeatures, rng.Next64());
    Matrix<double> x = scale * testing_data::RandomMatrix(kRows, kFeatures, rng.Next64());
    std::vector<int64_t> labels;
    for (Eigen::Index i = 0; i < kRows; ++i) labels.push_back(x.row(i).dot(rule) > rng.Normal());
    // With z = (w1 - w0).x~, the loss's second derivative in z is at most 1/4, its
    // third 1/(6 sqrt 3), and |w1 - w0| <= sqrt 2 |w|.
    Eigen::MatrixXd extended(kRows, kFeatures + 1);
    extended << x, Eigen::VectorXd::Ones(kRows);
    const Eigen::MatrixXd moment = extended.transpose() * extended / kRows;
    const double largest =
        Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(moment).eigenvalues().maxCoeff();
    problem.smoothness = std::max(problem.smoothness, largest / 2 + kL2);
    const double cubes = extended.rowwise().norm().array().cube().mean();
    problem.third_order =
        std::max(problem.third_order, std::pow(2, 1.5) * cubes / (6 * std::sqrt(3)));
    Dataset data;
    data.id = "client";
    data.train = {testing_data::Array(x), testing_data::Labels(labels)};
    problem.clients.push_back(testing_data::Make(testing_data::SoftmaxModel(2, kL2), data));
  }
  return problem;
}

// The gradient of F_c plus independent normal noise of variance sigma^2 in all,
// wherever a batch is asked for: the paper's assumption on stochastic gradients.
class NoisyObjective : public Objective<double> {
 public:
  NoisyObjective(Objective<double>& exact, double sigma, uint64_t examples, uint64_t seed)
      : exact_(exact), sigma_(sigma), examples_(examples), rng_(seed, 3, 0, Purpose::kTest) {}
  uint64_t examples() const override { return examples_; }
  double Evaluate(ConstVectorRef<double> w, absl::Span<const uint32_t> rows,
                  VectorRef<double> gradient) override {
    const double loss = exact_.Evaluate(w, {}, gradient);
    const double scale = sigma_ / std::sqrt(static_cast<double>(w.size()));
    if (!rows.empty()) {
      for (double& g : gradient) g += scale * rng_.Normal();
    }
    return loss;
  }
  TestResult Test(ConstVectorRef<double>) override { return {}; }

 private:
  Objective<double>& exact_;
  const double sigma_;
  const uint64_t examples_;
  Rng rng_;
};

// F(w), and its gradient if asked for.
inline double Loss(const Problem& problem, const Vector<double>& w,
                   Vector<double>* gradient = nullptr) {
  Vector<double> sum = Vector<double>::Zero(w.size());
  Vector<double> own(w.size());
  double loss = 0;
  const auto clients = static_cast<double>(problem.clients.size());
  for (const ObjectivePtr& client : problem.clients) {
    loss += client->Evaluate(w, {}, own) / clients;
    sum += own / clients;
  }
  if (gradient != nullptr) *gradient = sum;
  return loss;
}

// G(w): the average over clients of (w - w_c^(H)) / (eta H).
inline Vector<double> PseudoGradient(const Problem& problem, const Vector<double>& w, double eta,
                                     uint32_t steps, uint32_t batch_size = 0) {
  v1::Task task;
  task.mutable_rule()->set_step_size(eta);
  task.mutable_rule()->set_steps(steps);
  task.mutable_rule()->set_batch_size(batch_size);
  Ask(kDisplacement, task);
  Ask(kLoss, task);
  const TaskSums sums(task, static_cast<size_t>(w.size()));
  Vector<double> sum = Vector<double>::Zero(w.size());
  for (const ObjectivePtr& client : problem.clients) {
    const auto report = RunTask<double>(*client, task, w, Rng(0, 0, 0, Purpose::kBatchOrder));
    EXPECT_TRUE(report.ok()) << report.status();
    sum += NamedReport<>(sums, *report).vector(kDisplacement);
  }
  return sum / (eta * steps * static_cast<double>(problem.clients.size()));
}

// w*, by accelerated gradient descent.
inline Vector<double> Minimiser(const Problem& problem) {
  const double root = std::sqrt(problem.convexity / problem.smoothness);
  const double momentum = (1 - root) / (1 + root);
  Vector<double> w = Vector<double>::Zero(problem.dimension);
  Vector<double> ahead = w;
  Vector<double> gradient;
  for (int i = 0; i < 100000; ++i) {
    Loss(problem, ahead, &gradient);
    const Vector<double> next = ahead - gradient / problem.smoothness;
    ahead = next + momentum * (next - w);
    w = next;
    if (gradient.norm() < 1e-13) break;
  }
  Loss(problem, w, &gradient);
  EXPECT_LT(gradient.norm(), 1e-12);
  return w;
}

inline std::vector<Problem> RandomProblems(uint64_t seeds) {
  std::vector<Problem> problems;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    problems.push_back(RandomQuadratics(seed));
    problems.push_back(RandomLogistic(seed));
  }
  return problems;
}

}  // namespace leeway

#endif  // LEEWAY_TESTS_CONVEX_PROBLEMS_H_
