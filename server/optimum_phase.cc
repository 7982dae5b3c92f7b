// Finds w* by L-BFGS on exact federated gradients.
#include "common/status.h"
#include "common/sums.h"
#include "records/search_bounds.h"
#include "server/lbfgs.h"
#include "server/phase.h"
#include "server/scale.h"

namespace leeway {
namespace {

class OptimumPhase : public PhaseScript {
 public:
  OptimumPhase(const v1::Optimum& config, const RunContext& run)
      : config_(config), search_(ValuesOf(run.layout, *run.current)) {
    point_ = MakeModel(run.layout, search_.point());
  }

  RoundPlan Next(const RunContext& run, uint64_t) const override {
    RoundPlan plan;
    plan.record.set_kind(v1::OPTIMUM_ROUND);
    Ask(kGradient, plan.task)
        .set_largest(LargestGradient(run, MaxUpdate(run.config) / config_.gradient_scale(),
                                     kLbfgsFirstStep));
    plan.base = point_;
    return plan;
  }

  absl::StatusOr<bool> Absorb(RoundPlan& plan, const Tally& tally, uint64_t rounds_done,
                              RunContext& run) override {
    const double before = search_.best_norm();
    search_.Observe(MeanOf(plan.task, tally, kGradient));
    if (search_.best_norm() < before) {
      run.optimum_loss = plan.record.loss();
      run.optimum_loss_standard_error = plan.record.loss_standard_error();
      run.optimum_resolution = ResolutionOf(plan.task, tally, kGradient);
    }
    const bool over = NearEnough(run) || rounds_done >= config_.max_rounds();
    if (over) {
      run.optimum = MakeModel(run.layout, search_.best());
      run.current = run.optimum;
    } else {
      point_ = MakeModel(run.layout, search_.point());
    }
    return over;
  }

  std::vector<double> Save() const override { return search_.Save(); }
  absl::Status Restore(const std::vector<double>& state, const RunContext& run) override {
    LEEWAY_RETURN_IF_ERROR(search_.Restore(state));
    point_ = MakeModel(run.layout, search_.point());
    return absl::OkStatus();
  }

 private:
  bool NearEnough(const RunContext& run) const {
    // All of the best point so far: the loss of a trial far away may be anything.
    const double norm = search_.best_norm();
    if (norm <= run.optimum_resolution) return true;  // the sums say no more
    if (config_.tolerance() > 0) return norm <= config_.tolerance();
    return norm <= kOptimumTolerance ||
           OptimumIsNearEnough(norm, ConvexityAlready(run), run.optimum_loss_standard_error);
  }

  // What is known of the convexity of F before w* is: the Hessian of linear regression is
  // the same everywhere.
  static double ConvexityAlready(const RunContext& run) {
    const v1::Model& model = run.config.model();
    if (run.constants && model.has_linear_regression()) return ConvexityOf(*run.constants);
    return ConvexityOf(model);
  }

  v1::Optimum config_;
  Lbfgs search_;
  ModelPtr point_;  // the point that the search asks about
};

}  // namespace

std::unique_ptr<PhaseScript> MakeOptimumPhase(const v1::Optimum& config, const RunContext& run) {
  return std::make_unique<OptimumPhase>(config, run);
}

}  // namespace leeway
