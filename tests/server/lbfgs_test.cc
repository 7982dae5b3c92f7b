#include "server/lbfgs.h"

#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <cmath>

#include "common/rng.h"

namespace leeway {
namespace {

Vector<double> RandomVector(Eigen::Index n, Rng& rng) {
  Vector<double> v(n);
  for (double& x : v) x = rng.Normal();
  return v;
}

// A quadratic with eigenvalues from 1 to kappa.
struct Quadratic {
  Quadratic(Eigen::Index n, double kappa, uint64_t seed) {
    Rng rng(seed, 0, 0, Purpose::kTest);
    Eigen::MatrixXd m(n, n);
    for (Eigen::Index i = 0; i < n; ++i) m.col(i) = RandomVector(n, rng);
    const Eigen::MatrixXd q = m.householderQr().householderQ();
    Eigen::VectorXd d(n);
    for (Eigen::Index i = 0; i < n; ++i) {
      d[i] = std::pow(kappa, static_cast<double>(i) / static_cast<double>(n - 1));
    }
    a = q * d.asDiagonal() * q.transpose();
    minimiser = RandomVector(n, rng);
  }
  Vector<double> Gradient(const Vector<double>& x) const { return a * (x - minimiser); }
  Eigen::MatrixXd a;
  Vector<double> minimiser;
};

TEST(LbfgsTest, FindsTheMinimumOfQuadratics) {
  for (const double kappa : {1.0, 10.0, 1e3, 1e5}) {
    const Quadratic f(30, kappa, 1);
    Lbfgs search(Vector<double>::Zero(30));
    int evaluations = 0;
    while (search.best_norm() > 1e-9 && evaluations < 3000) {
      search.Observe(f.Gradient(search.point()));
      ++evaluations;
    }
    EXPECT_LE(search.best_norm(), 1e-9) << kappa;
    EXPECT_LT((search.best() - f.minimiser).norm(), 1e-8);
    RecordProperty("evaluations", evaluations);
  }
}

TEST(LbfgsTest, FindsTheMinimumOfALogisticLoss) {
  Rng rng(2, 0, 0, Purpose::kTest);
  Eigen::MatrixXd x(200, 5);
  Eigen::VectorXd y(200);
  for (Eigen::Index i = 0; i < 200; ++i) {
    x.row(i) = RandomVector(5, rng).transpose() * 10;
    y[i] = rng.Uniform() < 0.5 ? -1 : 1;
  }
  Lbfgs search(Vector<double>::Zero(5));
  for (int i = 0; i < 500 && search.best_norm() > 1e-11; ++i) {
    const Vector<double>& w = search.point();
    const Eigen::ArrayXd margin = y.array() * (x * w).array();
    const Eigen::VectorXd pull = -y.array() / (1 + margin.exp());
    search.Observe(x.transpose() * pull / 200 + 1e-3 * w);
  }
  EXPECT_LE(search.best_norm(), 1e-11);
}

TEST(LbfgsTest, ARestoredSearchGoesOnWithTheSameBits) {
  const Quadratic f(12, 1e3, 3);
  Lbfgs straight(Vector<double>::Zero(12));
  Lbfgs resumed(Vector<double>::Zero(12));
  for (int i = 0; i < 60; ++i) {
    ASSERT_EQ(straight.point(), resumed.point()) << i;
    straight.Observe(f.Gradient(straight.point()));
    resumed.Observe(f.Gradient(resumed.point()));
    Lbfgs copy(Vector<double>::Zero(12));
    ASSERT_TRUE(copy.Restore(resumed.Save()).ok());
    resumed = copy;
  }
}

TEST(LbfgsTest, RestoreRefusesOtherNumbers) {
  Lbfgs search(Vector<double>::Zero(4));
  EXPECT_FALSE(search.Restore({}).ok());
  std::vector<double> state = search.Save();
  state.push_back(0);
  EXPECT_FALSE(search.Restore(state).ok());
}

}  // namespace
}  // namespace leeway
