#include "server/phase.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/sums.h"

namespace leeway {
namespace {

// The largest number of local steps of all phases whose step size is automatic, if one of
// them is a fixed_point phase, from which the verdict comes; else 1.
uint32_t LargestStepsOfVerdict(const v1::RunConfig& config) {
  const bool verdict = absl::c_any_of(config.phases(), [](const v1::Phase& phase) {
    return phase.has_fixed_point() && phase.fixed_point().step_size() == 0;
  });
  uint32_t largest = 1;
  if (!verdict) return largest;
  const auto consider = [&](double step_size, const auto& steps) {
    if (step_size > 0) return;
    for (const uint32_t h : steps) largest = std::max(largest, h);
  };
  for (const v1::Phase& phase : config.phases()) {
    consider(phase.probe().step_size(), phase.probe().steps());
    consider(phase.fixed_point().step_size(), phase.fixed_point().steps());
    consider(phase.train().local().step_size(), std::vector{MostSteps(phase.train().local())});
    consider(phase.train().probe().step_size(), phase.train().probe().steps());
    consider(phase.release().step_size(), phase.release().steps());
    consider(phase.train().release().step_size(), phase.train().release().steps());
  }
  return largest;
}

}  // namespace

uint32_t MostSteps(const v1::LocalRule& rule) {
  return rule.has_auto_steps() ? rule.auto_steps().largest() : rule.steps();
}

const ModelPtr& RunContext::At(v1::Probe::Point point) const {
  switch (point) {
    case v1::Probe::INITIAL:
      return initial;
    case v1::Probe::OPTIMUM:
      return optimum;
    default:
      return current;
  }
}

double RunContext::StepSize(double configured, uint32_t steps) const {
  if (configured > 0 || !constants) return configured;
  // The theory asks it of every client (paper, Theorem 2).
  const double eta = 1 / constants->largest_client_smoothness();
  const double convexity = constants->smallest_client_convexity();
  const uint32_t most = std::max(steps, LargestStepsOfVerdict(config));
  return convexity > 0 ? std::min(eta, 1 / (convexity * most)) : eta;
}

Vector<double> MeanOf(const v1::Task& task, const Tally& tally, absl::string_view name) {
  const TaskSums sums(task, tally.shape().dimension);
  return tally.vector(static_cast<size_t>(sums.vector(name))) / static_cast<double>(tally.weight());
}

absl::StatusOr<ModelPtr> Average(const v1::Task& task, const Tally& tally, const Model& model,
                                 const RunContext& run, absl::string_view what,
                                 absl::string_view field) {
  const TaskSums sums(task, run.layout.size());
  const auto displacement = static_cast<size_t>(sums.vector(kDisplacement));
  std::atomic<bool> finite = true;
  ModelPtr next =
      ChangeModel(run.layout, model, run.workers, [&](size_t begin, absl::Span<double> values) {
        const auto size = static_cast<Eigen::Index>(values.size());
        double space[kMostChanged];
        tally.Read(displacement, begin, absl::MakeSpan(space, values.size()));
        Eigen::Map<Vector<double>> w(values.data(), size);
        w -= Eigen::Map<Vector<double>>(space, size) / static_cast<double>(tally.weight());
        if (!w.allFinite()) finite = false;
      });
  if (finite) return next;
  return absl::OutOfRangeError(
      absl::StrCat(what, " diverged: the model is no longer finite; lower ", field));
}

absl::Status PhaseScript::Restore(const std::vector<double>& state, const RunContext&) {
  if (state.empty()) return absl::OkStatus();
  return absl::DataLossError("saved state of a phase that has none");
}

std::unique_ptr<PhaseScript> MakePhase(const v1::Phase& phase, RunContext& run) {
  switch (phase.kind_case()) {
    case v1::Phase::kOptimum:
      return MakeOptimumPhase(phase.optimum(), run);
    case v1::Phase::kProbe:
      return MakeProbePhase(phase.probe());
    case v1::Phase::kTrain:
      return MakeTrainPhase(phase.train(), run);
    case v1::Phase::kConstants:
      return MakeConstantsPhase(phase.constants(), run);
    case v1::Phase::kFixedPoint:
      return MakeFixedPointPhase(phase.fixed_point(), run);
    case v1::Phase::kRelease:
      return MakeReleasePhase(phase.release(), run);
    default:
      return MakeEvaluatePhase(phase.evaluate());
  }
}

}  // namespace leeway
