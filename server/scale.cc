#include "server/scale.h"

#include <algorithm>
#include <cmath>

#include "absl/algorithm/container.h"
#include "common/sums.h"

namespace leeway {
namespace {

constexpr double kUsualUpdate = 256;
constexpr double kUsualHessian = 64;  // of max_update

// What was measured at the initial model may grow by this on the way. A usual value that leaves as
// much room and is not so large that it costs precision is kept: then the bits are the same
// whether the scale was measured or not.
constexpr double kRoom = 0x1p3;
constexpr double kNewRoom = 0x1p8;
constexpr double kMostTooLarge = 0x1p24;

double Fit(const RunContext& run, double usual, double needed) {
  if (!run.scale || !(needed > 0)) return usual;
  if (kRoom * needed <= usual && usual <= kMostTooLarge * needed) return usual;
  return std::exp2(std::ceil(std::log2(kNewRoom * needed)));
}

}  // namespace

double MaxUpdate(const v1::RunConfig& config) {
  return config.max_update() > 0 ? config.max_update() : kUsualUpdate;
}

bool NeedsScale(const RunContext& run) {
  const v1::Model& model = run.config.model();
  if (run.scale || run.config.max_update() > 0) return false;
  if (!model.has_linear_regression() && !model.has_softmax_regression()) return false;
  return absl::c_any_of(run.config.phases(), [](const v1::Phase& phase) {
    return phase.has_optimum() || phase.has_constants() || phase.has_fixed_point();
  });
}

RoundPlan PlanScale(const RunContext& run) {
  RoundPlan plan;
  plan.record.set_kind(v1::SCALE_ROUND);
  plan.record.set_point(v1::Probe::INITIAL);
  plan.round_in_phase = 0;
  Ask(kLargestGradient, plan.task);
  Ask(kLargestHessian, plan.task);
  plan.base = run.initial;
  return plan;
}

// The root of a sum of squares is at least the largest of them.
v1::Scale ReadScale(const RoundPlan& plan, const Tally& tally) {
  const TaskSums sums(plan.task, tally.shape().dimension);
  const auto root = [&](const char* name) {
    const int at = sums.number(name);
    return at == TaskSums::kNone ? 0 : std::sqrt(tally.number(static_cast<size_t>(at)));
  };
  v1::Scale scale;
  scale.set_gradient(root(kLargestGradient));
  scale.set_hessian(root(kLargestHessian));
  scale.set_loss(root(kLossSquared));
  return scale;
}

double LargestHessian(const RunContext& run) {
  return Fit(run, kUsualHessian * MaxUpdate(run.config), run.scale ? run.scale->hessian() : 0);
}

double LargestGradient(const RunContext& run, double usual, double step) {
  if (!run.scale) return usual;
  const double growth = std::sqrt(static_cast<double>(run.layout.size())) * run.scale->hessian();
  return Fit(run, usual, run.scale->gradient() + step * growth);
}

// Steps of gradient descent with eta <= 1/L do not lengthen the gradient, and lower the loss by
// eta/2 |g|^2 each: after h of them a client is at most eta h |g|, and at most sqrt(2 eta h F_c),
// away.
double LargestDisplacement(const RunContext& run, const v1::LocalRule& rule) {
  double needed = 0;
  if (run.scale && rule.steps() > 0) {
    const double length = rule.step_size() * rule.steps();
    needed = std::min(length * run.scale->gradient(), std::sqrt(2 * length * run.scale->loss()));
  }
  return Fit(run, MaxUpdate(run.config), needed);
}

double ResolutionOf(const v1::Task& task, const Tally& tally, absl::string_view name) {
  const TaskSums sums(task, tally.shape().dimension);
  const VectorSum& vector = tally.shape().vectors[static_cast<size_t>(sums.vector(name))];
  // Each client's integer is off by at most one half.
  const double coordinate = std::ldexp(0.5, -vector.fraction_bits) *
                            static_cast<double>(tally.clients()) /
                            static_cast<double>(tally.weight());
  return coordinate * std::sqrt(static_cast<double>(tally.shape().dimension));
}

}  // namespace leeway
