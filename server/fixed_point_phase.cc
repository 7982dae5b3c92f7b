// Finds where FedAvg comes to rest for each number of local steps, and measures
// the loss there: the gap to the optimum is what heterogeneity costs. Before that, what to
// compare it with; beside it, the loss after some rounds from the initial model, and who pays.
#include <cmath>
#include <optional>

#include "common/status.h"
#include "common/sums.h"
#include "records/rule.h"
#include "records/search_bounds.h"
#include "server/anderson.h"
#include "server/phase.h"
#include "server/scale.h"
#include "server/who_pays_search.h"
#include "server/yardstick.h"

namespace leeway {
namespace {

// For every number of local steps: the path from the initial model, if it is asked for; the
// search; the counts of who pays.
class FixedPointPhase : public PhaseScript {
 public:
  FixedPointPhase(const v1::FixedPoint& config, const RunContext& run)
      : config_(config),
        layout_(run.layout),
        yardstick_(run),
        search_(ValuesOf(run.layout, *run.optimum)) {
    point_ = run.optimum;
    BeginSteps(run);
  }

  RoundPlan Next(const RunContext& run, uint64_t) const override {
    if (!yardstick_.done()) return yardstick_.Next(run);
    RoundPlan plan;
    plan.record.set_kind(v1::FIXED_POINT_ROUND);
    if (stage_ == Stage::kCount) {
      counting_->Ask(point_, run.optimum, plan);
      return plan;
    }
    const bool path = stage_ == Stage::kPath;
    plan.base = path ? path_ : point_;
    if (path) plan.record.set_point(v1::Probe::CURRENT);              // see IsAside
    if (path && path_rounds_ == config_.after_rounds()) return plan;  // for the loss alone
    plan.record.set_server_rate(1);
    v1::LocalRule& rule = *plan.task.mutable_rule();
    rule.set_steps(H());
    rule.set_step_size(run.StepSize(config_.step_size(), *config_.steps().rbegin()));
    Ask(kDisplacement, plan.task);
    return plan;
  }

  absl::StatusOr<bool> Absorb(RoundPlan& plan, const Tally& tally, uint64_t,
                              RunContext& run) override {
    if (!yardstick_.done()) {
      yardstick_.Absorb(plan, tally, run);
      return yardstick_.done() && Over();
    }
    if (stage_ == Stage::kPath) return AbsorbPath(plan, tally, run);
    if (stage_ == Stage::kCount) {
      ++aside_;
      counting_->Absorb(H(), tally, plan);
      if (counting_->done()) NextSteps(run);
      return Over();
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
    result.set_loss_gap(gap);
    result.set_distance(distance);
    result.set_pseudo_gradient_norm(norm);
    result.set_resolution(resolution);
    FillResult(plan.task.rule(), run, result);
    // The next one starts here: fixed points of neighbouring H are neighbours.
    rounds_ = 0;
    search_ = Anderson(search_.point());
    // A gap that is harmless anyway needs no comparison with the sampling error.
    if (gap > Harmless(run)) yardstick_.WantSamplingError();
    if (config_.who_pays_off()) {
      NextSteps(run);
    } else {
      counting_.emplace(LossSize(plan.record.loss(), run), run);
      stage_ = Stage::kCount;
    }
    return yardstick_.done() && Over();
  }

  uint64_t RoundsAsideSoFar(uint64_t) const override { return aside_; }

  std::vector<double> Save() const override {
    const std::vector<double> yardstick = yardstick_.Save();
    const std::vector<double> counting = counting_ ? counting_->Save() : std::vector<double>();
    const Vector<double> path =
        stage_ == Stage::kPath && path_rounds_ > 0 ? ValuesOf(layout_, *path_) : Vector<double>();
    std::vector<double> out = {static_cast<double>(index_),
                               static_cast<double>(rounds_),
                               static_cast<double>(stage_),
                               static_cast<double>(path_rounds_),
                               path_loss_,
                               static_cast<double>(aside_),
                               static_cast<double>(yardstick.size()),
                               static_cast<double>(counting.size()),
                               static_cast<double>(path.size())};
    out.insert(out.end(), yardstick.begin(), yardstick.end());
    out.insert(out.end(), counting.begin(), counting.end());
    out.insert(out.end(), path.data(), path.data() + path.size());
    const std::vector<double> search = search_.Save();
    out.insert(out.end(), search.begin(), search.end());
    return out;
  }
  absl::Status Restore(const std::vector<double>& state, const RunContext& run) override;

 private:
  enum class Stage { kPath, kSearch, kCount };

  bool Over() const { return index_ >= static_cast<uint32_t>(config_.steps_size()); }

  uint32_t H() const { return config_.steps(static_cast<int>(index_)); }

  void BeginSteps(const RunContext& run) {
    stage_ = config_.after_rounds() > 0 ? Stage::kPath : Stage::kSearch;
    path_ = run.initial;
    path_rounds_ = 0;
  }
  void NextSteps(const RunContext& run) {
    counting_.reset();
    ++index_;
    BeginSteps(run);
  }

  // One round of plain FedAvg and, after the last, one for the loss.
  absl::StatusOr<bool> AbsorbPath(const RoundPlan& plan, const Tally& tally,
                                  const RunContext& run) {
    ++aside_;
    if (path_rounds_ == config_.after_rounds()) {
      path_loss_ = plan.record.loss();
      path_.reset();
      stage_ = Stage::kSearch;
      return false;
    }
    LEEWAY_ASSIGN_OR_RETURN(path_,
                            Average(plan.task, tally, *path_, run,
                                    "FedAvg from the initial model (fixed_point.after_rounds)",
                                    "fixed_point.step_size"));
    ++path_rounds_;
    return false;
  }

  // What does not come from the round at w_H.
  void FillResult(const v1::LocalRule& rule, const RunContext& run,
                  v1::FixedPointResult& result) const {
    result.set_h(rule.steps());
    result.set_step_size(rule.step_size());
    result.set_loss_standard_error(run.optimum_loss_standard_error);
    result.set_optimum_resolution(run.optimum_resolution);
    result.set_rounds(rounds_);
    result.set_model_sha256(point_->sha256);
    if (config_.after_rounds() == 0) return;
    result.set_after_rounds(config_.after_rounds());
    result.set_loss_after_rounds(path_loss_);
  }

  // Of the losses that clients compare.
  double LossSize(double loss, const RunContext& run) const {
    const double constant = yardstick_.result().constant_loss();
    return std::abs(loss) + std::abs(run.optimum_loss.value_or(0)) +
           (std::isfinite(constant) ? std::abs(constant) : 0);
  }

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
  ModelLayout layout_;
  YardstickSearch yardstick_;
  Anderson search_;
  ModelPtr point_;       // where the map is applied next; at the end of a search, w_H
  uint32_t index_ = 0;   // into config_.steps
  uint32_t rounds_ = 0;  // spent on this number of steps
  Stage stage_ = Stage::kSearch;
  ModelPtr path_;                          // from the initial model
  uint32_t path_rounds_ = 0;               // behind it
  double path_loss_ = 0;                   // at its end
  std::optional<WhoPaysSearch> counting_;  // under way
  uint64_t aside_ = 0;                     // rounds of the path and of counting so far
};

absl::Status FixedPointPhase::Restore(const std::vector<double>& state, const RunContext& run) {
  constexpr size_t kFixed = 9;
  const absl::Status cut = absl::DataLossError("saved fixed-point state is cut short");
  if (state.size() < kFixed) return cut;
  index_ = static_cast<uint32_t>(state[0]);
  rounds_ = static_cast<uint32_t>(state[1]);
  stage_ = static_cast<Stage>(static_cast<int>(state[2]));
  path_rounds_ = static_cast<uint32_t>(state[3]);
  path_loss_ = state[4];
  aside_ = static_cast<uint64_t>(state[5]);
  const auto yardstick = static_cast<size_t>(state[6]);
  const auto counting = static_cast<size_t>(state[7]);
  const auto path = static_cast<size_t>(state[8]);
  if (state.size() < kFixed + yardstick + counting + path) return cut;
  const double* next = state.data() + kFixed;
  LEEWAY_RETURN_IF_ERROR(yardstick_.Restore({next, next + yardstick}));
  next += yardstick;
  if (counting > 0) {
    counting_.emplace(1, run);
    LEEWAY_RETURN_IF_ERROR(counting_->Restore(absl::MakeSpan(next, counting), run));
  }
  next += counting;
  if (path > 0) {
    if (path != run.layout.size()) return cut;
    const Eigen::Map<const Vector<double>> values(next, static_cast<Eigen::Index>(path));
    path_ = MakeModel(run.layout, Vector<double>(values));
  }
  next += path;
  LEEWAY_RETURN_IF_ERROR(search_.Restore({next, state.data() + state.size()}));
  point_ = MakeModel(run.layout, search_.point());
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<PhaseScript> MakeFixedPointPhase(const v1::FixedPoint& config,
                                                 const RunContext& run) {
  return std::make_unique<FixedPointPhase>(config, run);
}

}  // namespace leeway
