#include "server/server_optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

namespace leeway {
namespace {

std::unique_ptr<ServerOptimizer> Make(const v1::ServerOptimizer& config) {
  std::unique_ptr<ServerOptimizer> optimizer = MakeServerOptimizer(config);
  optimizer->Begin(3);
  return optimizer;
}

v1::ServerOptimizer WithAdam() {
  v1::ServerOptimizer config;
  config.set_rate(0.1);
  config.mutable_adam();
  return config;
}

Vector<double> StepAll(ServerOptimizer& optimizer, Vector<double> w, Vector<double> u) {
  optimizer.Step(0, u, w);
  return w;
}

TEST(ServerOptimizerTest, FirstStepOfAdamByHand) {
  const auto adam = Make(WithAdam());
  const Vector<double> w = StepAll(*adam, Vector<double>::Zero(3), Vector<double>{{1, -2, 0}});
  for (const auto& [i, u] : {std::pair{0, 1.0}, std::pair{1, -2.0}, std::pair{2, 0.0}}) {
    const double v = 0.99 * 1e-6 + 0.01 * u * u;
    EXPECT_NEAR(w[i], -0.1 * 0.1 * u / (std::sqrt(v) + 1e-3), 1e-15);
  }
}

TEST(ServerOptimizerTest, PartsOfAModelMoveAsTheWholeDoes) {
  const auto whole = Make(WithAdam());
  const auto parts = Make(WithAdam());
  Vector<double> a = Vector<double>::Zero(3);
  Vector<double> b = a;
  for (int round = 0; round < 4; ++round) {
    const Vector<double> u{{0.5, -1.0 - round, 3}};
    a = StepAll(*whole, a, u);
    for (const size_t begin : {size_t{1}, size_t{0}}) {
      Vector<double> own = u.segment(static_cast<Eigen::Index>(begin), begin == 0 ? 1 : 2);
      parts->Step(begin, own, b.segment(static_cast<Eigen::Index>(begin), own.size()));
    }
  }
  EXPECT_EQ(a, b);
}

TEST(ServerOptimizerTest, StateComesBack) {
  const auto one = Make(WithAdam());
  const Vector<double> u{{1, 2, 3}};
  Vector<double> w = StepAll(*one, Vector<double>::Zero(3), u);
  const std::unique_ptr<ServerOptimizer> other = MakeServerOptimizer(WithAdam());
  ASSERT_TRUE(other->Restore(one->Save(), 3).ok());
  other->Begin(3);
  EXPECT_EQ(StepAll(*other, w, u), StepAll(*one, w, u));
  EXPECT_TRUE(absl::IsDataLoss(other->Restore({1, 2}, 3)));
}

}  // namespace
}  // namespace leeway
