// Finds where FedAvg comes to rest for each number of local steps, and measures
// the loss there: the gap to the optimum is what heterogeneity costs. Before that, what to
// compare it with.
#include <cmath>

#include "common/status.h"
#include "common/sums.h"
#include "records/rule.h"
#include "records/search_bounds.h"
#include "server/anderson.h"
#include "server/phase.h"
#include "server/scale.h"
#include "server/yardstick.h"

namespace leeway {
namespace {

class FixedPointPhase : public PhaseScript {
 public:
  FixedPointPhase(const v1::FixedPoint& config, const RunContext& run)
      : config_(config), yardstick_(run), search_(ValuesOf(run.layout, *run.optimum)) {
    point_ = run.optimum;
  }

  RoundPlan Next(const RunContext& run, uint64_t) const override {
    if (!yardstick_.done()) return yardstick_.Next(run);
    RoundPlan plan;
    plan.record.set_kind(v1::FIXED_POINT_ROUND);
    plan.record.set_server_rate(1);
    v1::LocalRule& rule = *plan.task.mutable_rule();
    rule.set_steps(config_.steps(static_cast<int>(index_)));
    rule.set_step_size(run.StepSize(config_.step_size(), *config_.steps().rbegin()));
    Ask(kDisplacement, plan.task);
    plan.base = point_;
    return plan;
  }

  absl::StatusOr<bool> Absorb(RoundPlan& plan, const Tally& tally, uint64_t,
                              RunContext& run) override {
    if (!yardstick_.done()) {
      yardstick_.Absorb(plan, tally, run);
      return yardstick_.done() && Over();
    }
    ++rounds_;
    const Vector<double> residual = -MeanOf(plan.task, tally, kDisplacement);
    const double length = plan.task.rule().step_size() * plan.task.rule().steps();
    const double norm = residual.norm() / length;
    const double resolution = ResolutionOf(plan.task, tally, kDisplacement) / length;
    const double distance =
        (ValuesOf(run.layout, *point_) - ValuesOf(run.layout, *run.optimum)).norm();
    const double gap = plan.record.loss() - run.optimum_loss.value_or(std::nan(""));
    if (!NearEnough(plan.task.rule(), norm, resolution, distance, gap, run) &&
        rounds_ < config_.max_rounds()) {
      search_.Observe(residual);
      point_ = MakeModel(run.layout, search_.point());
      return false;
    }
    v1::FixedPointResult& result = *plan.record.mutable_fixed_point();
    result.set_h(plan.task.rule().steps());
    result.set_step_size(plan.task.rule().step_size());
    result.set_loss_gap(gap);
    result.set_loss_standard_error(run.optimum_loss_standard_error);
    result.set_distance(distance);
    result.set_pseudo_gradient_norm(norm);
    result.set_resolution(resolution);
    result.set_optimum_resolution(run.optimum_resolution);
    result.set_rounds(rounds_);
    result.set_model_sha256(point_->sha256);
    // The next one starts here: fixed points of neighbouring H are neighbours.
    rounds_ = 0;
    search_ = Anderson(search_.point());
    ++index_;
    // A gap that is harmless anyway needs no comparison with the sampling error.
    if (gap > Harmless(run)) yardstick_.WantSamplingError();
    return yardstick_.done() && Over();
  }

  std::vector<double> Save() const override {
    const std::vector<double> yardstick = yardstick_.Save();
    std::vector<double> out = {static_cast<double>(index_), static_cast<double>(rounds_),
                               static_cast<double>(yardstick.size())};
    out.insert(out.end(), yardstick.begin(), yardstick.end());
    const std::vector<double> search = search_.Save();
    out.insert(out.end(), search.begin(), search.end());
    return out;
  }
  absl::Status Restore(const std::vector<double>& state, const RunContext& run) override {
    constexpr size_t kFixed = 3;
    const size_t yardstick = state.size() < kFixed ? 0 : static_cast<size_t>(state[2]);
    if (state.size() < kFixed + yardstick) {
      return absl::DataLossError("saved fixed-point state is cut short");
    }
    const auto middle = state.begin() + static_cast<std::ptrdiff_t>(kFixed + yardstick);
    index_ = static_cast<uint32_t>(state[0]);
    rounds_ = static_cast<uint32_t>(state[1]);
    LEEWAY_RETURN_IF_ERROR(yardstick_.Restore({state.begin() + kFixed, middle}));
    LEEWAY_RETURN_IF_ERROR(search_.Restore({middle, state.end()}));
    point_ = MakeModel(run.layout, search_.point());
    return absl::OkStatus();
  }

 private:
  bool Over() const { return index_ >= static_cast<uint32_t>(config_.steps_size()); }

  // A loss gap that the verdict calls harmless; NaN if it is not known.
  double Harmless(const RunContext& run) const {
    return HarmlessLost(run.config) *
           Explained(yardstick_.result(), run.optimum_loss.value_or(std::nan("")));
  }

  bool NearEnough(const v1::LocalRule& rule, double norm, double resolution, double distance,
                  double gap, const RunContext& run) const {
    if (norm <= resolution) return true;  // the sums say no more
    if (config_.tolerance() > 0) return norm <= config_.tolerance();
    if (norm <= kFixedPointTolerance) return true;
    return run.constants.has_value() &&
           FixedPointIsNearEnough(
               OpenLoss(*run.constants, norm, rule.step_size(), rule.steps(), distance), gap,
               rule.steps(), Harmless(run));
  }

  v1::FixedPoint config_;
  YardstickSearch yardstick_;
  Anderson search_;
  ModelPtr point_;       // where the map is applied next
  uint32_t index_ = 0;   // into config_.steps
  uint32_t rounds_ = 0;  // spent on this number of steps
};

}  // namespace

std::unique_ptr<PhaseScript> MakeFixedPointPhase(const v1::FixedPoint& config,
                                                 const RunContext& run) {
  return std::make_unique<FixedPointPhase>(config, run);
}

}  // namespace leeway
