// What a search may leave open: bounds, from measured constants, on how far the loss can
// still move from where a search for w* or for FedAvg's fixed point stands. The searches
// end by them, and the verdict's evidence rests on them. Pure functions.
#ifndef LEEWAY_RECORDS_SEARCH_BOUNDS_H_
#define LEEWAY_RECORDS_SEARCH_BOUNDS_H_

#include <cstdint>

#include "proto/record.pb.h"
#include "proto/run.pb.h"

namespace leeway {

// Without a tolerance of their own, searches end at these gradient norms at the latest.
inline constexpr double kOptimumTolerance = 1e-10;
inline constexpr double kFixedPointTolerance = 1e-9;

// The convexity of F; 0 if it is not known to have any. By Lanczos iteration that of F
// is approached from above, so that only the clients' smallest is a bound.
double ConvexityOf(const v1::ConstantsResult& constants);

// What the model itself says about the convexity of F: its quadratic penalty. 0: nothing.
double ConvexityOf(const v1::Model& model);

// The convexity of the average pseudo-gradient at h steps of size eta, at least, where
// that of F is `convexity`; 0 if it is not known to have any.
double PseudoConvexity(const v1::ConstantsResult& constants, double convexity, double eta,
                       uint32_t h);

// How much the loss can differ between a point where the average pseudo-gradient has this
// norm, at this distance from w*, and FedAvg's fixed point. Infinite if that is not known.
double OpenLoss(const v1::ConstantsResult& constants, double norm, double eta, uint32_t h,
                double distance);

// Whether a search for w* may end that was given no tolerance: F(w) - F(w*), at most
// |grad F|^2 / (2 mu), is less than a millionth of the loss's standard error over clients.
bool OptimumIsNearEnough(double norm, double convexity, double loss_standard_error);

// The same of a search for a fixed point: the loss there is known to a hundredth of what
// the verdict calls harmless and, as far as that is not rounding, to a tenth of its gap over
// F(w*). With one local step (h) there is no gap.
bool FixedPointIsNearEnough(double open_loss, double gap, uint32_t h, double harmless);

}  // namespace leeway

#endif  // LEEWAY_RECORDS_SEARCH_BOUNDS_H_
