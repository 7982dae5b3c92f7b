#include "server/measures.h"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <cmath>

#include "common/rng.h"
#include "server/sampler.h"

namespace leeway {
namespace {

TEST(MeasuresTest, UnbiasedEstimateIsThePlainOneWhenAllReport) {
  EXPECT_EQ(UnbiasedSquaredNorm(9.0, 5.0, 3, 3), 1.0);
}

// Over every possible cohort, the mean of the estimate is exactly the truth.
TEST(MeasuresTest, UnbiasedEstimateIsUnbiasedOverAllCohorts) {
  Rng rng(1, 0, 0, Purpose::kTest);
  constexpr int kClients = 8;
  Eigen::MatrixXd b(3, kClients);
  for (Eigen::Index i = 0; i < b.size(); ++i) b(i) = rng.Normal() + 0.3;
  const double truth = b.rowwise().mean().squaredNorm();
  for (int size = 2; size <= kClients; ++size) {
    double total = 0;
    double plain = 0;
    int cohorts = 0;
    for (unsigned mask = 0; mask < (1u << kClients); ++mask) {
      if (__builtin_popcount(mask) != size) continue;
      Eigen::Vector3d sum = Eigen::Vector3d::Zero();
      double squares = 0;
      for (int c = 0; c < kClients; ++c) {
        if ((mask >> c & 1) == 0) continue;
        sum += b.col(c);
        squares += b.col(c).squaredNorm();
      }
      total +=
          UnbiasedSquaredNorm(sum.squaredNorm(), squares, static_cast<uint64_t>(size), kClients);
      plain += sum.squaredNorm() / (size * size);
      ++cohorts;
    }
    EXPECT_NEAR(total / cohorts, truth, 1e-12) << size;
    EXPECT_TRUE(size == kClients || plain / cohorts > truth + 1e-3) << size;
  }
}

TEST(MeasuresTest, LossAndItsStandardErrorOverClients) {
  v1::Task task;
  task.mutable_rule()->set_step_size(0.1);
  task.set_full_step(true);
  const ReportLayout layout(task);
  TallyShape shape = layout.Shape(task, 2);
  shape.max_update = 256;
  shape.fraction_bits = FractionBits(256, 3);
  Tally tally(shape);
  const double losses[] = {1.0, 2.0, 6.0};
  const double steps[][2] = {{0.1, 0}, {0.3, 0.2}, {-0.1, 0.4}};  // eta * g
  for (int c = 0; c < 3; ++c) {
    std::vector<double> scalars(layout.scalars);
    scalars[static_cast<size_t>(layout.loss)] = losses[c];
    scalars[static_cast<size_t>(layout.loss_squared)] = losses[c] * losses[c];
    scalars[static_cast<size_t>(layout.gradient_squared)] =
        (steps[c][0] * steps[c][0] + steps[c][1] * steps[c][1]) / 0.01;
    ASSERT_TRUE(tally.Add<double>(0, 1, scalars, {steps[c], 2}).ok());
  }
  v1::RoundRecord record;
  FillMeasures(task, tally, 3, record);
  EXPECT_NEAR(record.loss(), 3.0, 1e-12);
  EXPECT_NEAR(record.loss_standard_error(), std::sqrt(7.0 / 3), 1e-12);  // sd 2.6458 / sqrt 3
  EXPECT_NEAR(record.gradient_norm(), std::sqrt(1.0 + 4.0), 1e-9);       // mean (1, 2)
  // |g - mean|^2: (1,0)-(1,2)=4; (3,2)-(1,2)=4; (-1,4)-(1,2)=8.
  EXPECT_NEAR(record.dissimilarity(), 16.0 / 3, 1e-9);
  EXPECT_TRUE(std::isnan(record.accuracy()));
}

}  // namespace
}  // namespace leeway
