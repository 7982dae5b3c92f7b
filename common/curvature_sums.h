// The names of sums that tell how the clients' Hessians differ, for the constants phase
// (docs/measures.md, 7). See common/sums.h for the others.
#ifndef LEEWAY_COMMON_CURVATURE_SUMS_H_
#define LEEWAY_COMMON_CURVATURE_SUMS_H_

namespace leeway {

// (H - R)^2 with the Hessian H of F_c at w and the task's reference Hessian R: a matrix.
inline constexpr char kSquaredHessianDistance[] = "squared_hessian_distance";
// H v with the vector v of the order's others.
inline constexpr char kHessianProduct[] = "hessian_product";
inline constexpr char kDirection[] = "direction";  // v
// H (H v - u), where u is the mean of H v over clients: the mean of it is that of
// (H - mean of H)^2 v.
inline constexpr char kHessianSpread[] = "hessian_spread";
inline constexpr char kMeanProduct[] = "mean_product";  // u

}  // namespace leeway

#endif  // LEEWAY_COMMON_CURVATURE_SUMS_H_
