#include "records/search_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace leeway {
namespace {

// A convexity below this part of the smoothness is that of a flat direction, such
// as softmax regression has without a penalty: what is measured of it is rounding.
constexpr double kFlat = 1e-10;
// The drift at w* is measured there, too, so that w* is wanted more exactly than a
// fixed point, of which only the loss counts.
constexpr double kOptimumPart = 1e-6;
constexpr double kOfStandardError = 0.25;
constexpr double kFixedPointPart = 1e-2;
constexpr double kGapPart = 0.1;

// 1 - (1 - s)^h, without cancellation for small s.
double Shrinks(double s, uint32_t h) { return -std::expm1(h * std::log1p(-s)); }

}  // namespace

double ConvexityOf(const v1::ConstantsResult& constants) {
  const double mu =
      constants.exact() ? constants.convexity() : constants.smallest_client_convexity();
  return mu > kFlat * constants.largest_client_smoothness() ? mu : 0;
}

double ConvexityOf(const v1::Model& model) {
  if (model.has_linear_regression()) return model.linear_regression().l2();
  return model.has_softmax_regression() ? model.softmax_regression().l2() : 0;
}

// A local step shrinks distances by at least the part s on every client. And for eta L
// <= 1, phi(lambda) = (1 - (1 - eta lambda)^h) / (eta h) is concave up to L, so that the
// average of phi over the clients' Hessians is at least phi(L)/L times the Hessian of F:
// a client that is flat does no harm.
double PseudoConvexity(const v1::ConstantsResult& constants, double convexity, double eta,
                       uint32_t h) {
  constexpr double kSlack = 1e-9;  // an automatic step size is 1/L itself
  if (h == 1) return convexity;    // the pseudo-gradient is the gradient
  const double x = eta * constants.largest_client_smoothness();
  if (!(x < 2)) return 0;  // local steps diverge
  const double s = std::min(eta * std::max(0.0, constants.smallest_client_convexity()), 2 - x);
  const double of_clients = Shrinks(s, h) / (eta * h);
  if (x > 1 + kSlack) return of_clients;
  return std::max(of_clients, convexity * Shrinks(std::min(x, 1.0), h) / (x * h));
}

// The rest of the way is at most |G| over the pseudo-gradient's convexity. How little a
// search has moved says nothing by itself: where curvature is small, a small |G| is far
// from rest.
double OpenLoss(const v1::ConstantsResult& constants, double norm, double eta, uint32_t h,
                double distance) {
  const double convexity = PseudoConvexity(constants, ConvexityOf(constants), eta, h);
  if (!(convexity > 0)) return std::numeric_limits<double>::infinity();
  const double away = norm / convexity;
  return constants.largest_client_smoothness() * away * (distance + away / 2);
}

bool OptimumIsNearEnough(double norm, double convexity, double loss_standard_error) {
  if (!(convexity > 0) || !(loss_standard_error > 0)) return false;
  return norm * norm / (2 * convexity) <= kOptimumPart * kOfStandardError * loss_standard_error;
}

bool FixedPointIsNearEnough(double open_loss, double gap, uint32_t h, double harmless) {
  if (!(harmless > 0) || !(open_loss <= kFixedPointPart * harmless)) return false;
  return h == 1 || open_loss <= std::max(kGapPart * gap, kOptimumPart * harmless);
}

}  // namespace leeway
