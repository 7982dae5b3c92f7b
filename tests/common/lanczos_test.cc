#include "common/lanczos.h"

#include <gtest/gtest.h>

#include <Eigen/Dense>

#include "common/rng.h"

namespace leeway {
namespace {

Eigen::MatrixXd Diagonal(Eigen::Index n) {
  Eigen::VectorXd d(n);
  for (Eigen::Index i = 0; i < n; ++i) d[i] = 0.01 + static_cast<double>(i * i);
  return d.asDiagonal();
}

TEST(LanczosTest, FindsBothEndsOfTheSpectrum) {
  const Eigen::MatrixXd a = Diagonal(60);
  Lanczos lanczos(60, 60);
  while (!lanczos.done()) lanczos.Observe(a * lanczos.direction());
  EXPECT_NEAR(lanczos.largest(), 0.01 + 59 * 59, 1e-8);
  EXPECT_NEAR(lanczos.smallest(), 0.01, 1e-8);
}

TEST(LanczosTest, FewIterationsBoundTheSpectrumFromInside) {
  const Eigen::MatrixXd a = Diagonal(400);
  Lanczos lanczos(400, 30);
  int products = 0;
  for (; !lanczos.done(); ++products) lanczos.Observe(a * lanczos.direction());
  EXPECT_EQ(products, 30);
  EXPECT_LE(lanczos.largest(), a(399, 399) * (1 + 1e-12));
  EXPECT_GT(lanczos.largest(), 0.999 * a(399, 399));
  EXPECT_GE(lanczos.smallest(), 0.01 - 1e-9);
}

// Of large dimensions only the last two vectors are kept: in exact arithmetic nothing changes.
TEST(LanczosTest, TheLastTwoVectorsAreEnoughForTheLargest) {
  const Eigen::MatrixXd a = Diagonal(400);
  Lanczos all(400, 30);
  Lanczos two(400, 30, Lanczos::Keep::kLastTwo);
  while (!all.done()) {
    all.Observe(a * all.direction());
    two.Observe(a * two.direction());
    Lanczos copy(400, 30, Lanczos::Keep::kLastTwo);
    ASSERT_TRUE(copy.Restore(two.Save()).ok());
    ASSERT_LE(two.Save().size(), 4 + 60 + 2 * 400);
    two = copy;
  }
  EXPECT_TRUE(two.done());
  EXPECT_NEAR(two.largest(), all.largest(), 1e-9 * all.largest());
}

TEST(LanczosTest, ARestoredIterationGoesOn) {
  const Eigen::MatrixXd a = Diagonal(20);
  Lanczos straight(20, 15);
  Lanczos resumed(20, 15);
  while (!straight.done()) {
    straight.Observe(a * straight.direction());
    resumed.Observe(a * resumed.direction());
    Lanczos copy(20, 15);
    ASSERT_TRUE(copy.Restore(resumed.Save()).ok());
    resumed = copy;
  }
  EXPECT_EQ(straight.largest(), resumed.largest());
  EXPECT_FALSE(resumed.Restore({1, 2}).ok());
}

}  // namespace
}  // namespace leeway
