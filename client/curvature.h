// What a client can tell of the curvature of its own loss: its Hessian, the
// extremes of its spectrum and products with its Hessian, for the constants phase.
// Hessians and spectra are for convex models, in double precision; products are for any.
#ifndef LEEWAY_CLIENT_CURVATURE_H_
#define LEEWAY_CLIENT_CURVATURE_H_

#include <Eigen/Core>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/objective.h"
#include "common/sums.h"
#include "common/vectors.h"
#include "proto/federation.pb.h"

namespace leeway {

// Hessian times v at w, from a central difference of full-batch gradients (exact
// up to rounding for linear regression, whose gradient is affine).
template <typename T>
Vector<double> HessianVector(Objective<T>& objective, const Vector<double>& w,
                             const Vector<double>& v);

// The whole Hessian, made symmetric.
Eigen::MatrixXd Hessian(Objective<double>& objective, const Vector<double>& w);

// Smallest and largest eigenvalue: from the Hessian for up to kExactDimension
// parameters, else by Lanczos iteration.
struct Spectrum {
  double smallest = 0;
  double largest = 0;
};
inline constexpr Eigen::Index kExactDimension = 256;
Spectrum SpectrumOf(Objective<double>& objective, const Vector<double>& w);

// Fills in the Hessian and the counts by spectrum of a report, as far as the task asks
// for them. `vectors` and `numbers` are the report's.
absl::Status ReportCurvature(Objective<double>& objective, const v1::Task& task,
                             const TaskSums& sums, const Vector<double>& w,
                             absl::Span<double> vectors, absl::Span<double> numbers);

// Fills in the counts of that name: 1 where `quantity` is above the threshold, else 0.
void CountAbove(const v1::Task& task, absl::string_view name, double quantity, const TaskSums& sums,
                absl::Span<double> numbers);

}  // namespace leeway

#endif  // LEEWAY_CLIENT_CURVATURE_H_
