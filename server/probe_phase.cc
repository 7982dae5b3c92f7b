// Measures without moving the model: drift probes and evaluations.
#include <algorithm>

#include "server/phase.h"

namespace leeway {
namespace {

constexpr uint32_t kGroups = 20;  // of a sampled probe, where the config does not say

// A delete-one-group jackknife wants at least two clients in every group.
uint32_t Groups(const v1::Probe& probe, uint64_t clients) {
  const bool sampled = probe.clients() > 0 && probe.clients() < clients;
  const uint64_t sample = sampled ? probe.clients() : clients;
  const uint64_t wanted = probe.groups() > 0 ? probe.groups() : sampled ? kGroups : 1;
  return static_cast<uint32_t>(std::clamp<uint64_t>(sample / 2, 1, wanted));
}

class ProbePhase : public PhaseScript {
 public:
  explicit ProbePhase(const v1::Probe& config) : config_(config) {}

  RoundPlan Next(const RunContext& run, uint64_t) const override { return PlanProbe(config_, run); }
  absl::StatusOr<bool> Absorb(RoundPlan&, const Tally&, uint64_t, RunContext&) override {
    return true;
  }

 private:
  v1::Probe config_;
};

class EvaluatePhase : public PhaseScript {
 public:
  explicit EvaluatePhase(const v1::Evaluate& config) : config_(config) {}

  RoundPlan Next(const RunContext& run, uint64_t) const override {
    return PlanEvaluation(config_.point(), run);
  }
  absl::StatusOr<bool> Absorb(RoundPlan&, const Tally&, uint64_t, RunContext&) override {
    return true;
  }

 private:
  v1::Evaluate config_;
};

}  // namespace

RoundPlan PlanProbe(const v1::Probe& probe, const RunContext& run) {
  const uint32_t steps = *probe.steps().rbegin();
  RoundPlan plan;
  plan.record.set_kind(v1::PROBE_ROUND);
  plan.record.set_point(probe.point());
  v1::LocalRule& rule = *plan.task.mutable_rule();
  rule.set_step_size(run.StepSize(probe.step_size(), steps));
  rule.set_steps(steps);
  rule.set_batch_size(probe.batch_size());
  plan.task.set_full_step(true);
  *plan.task.mutable_drift_steps() = probe.steps();
  plan.task.set_groups(Groups(probe, run.clients));
  plan.task.set_repeats(probe.repeats());
  plan.sample = probe.clients();
  plan.rounds_in_phase = 1;
  plan.base = run.At(probe.point());
  return plan;
}

RoundPlan PlanEvaluation(v1::Probe::Point point, const RunContext& run) {
  RoundPlan plan;
  plan.record.set_kind(v1::EVALUATE_ROUND);
  plan.record.set_point(point);
  plan.task.mutable_rule()->set_step_size(1);
  plan.task.set_evaluate(true);
  plan.rounds_in_phase = 1;
  plan.base = run.At(point);
  return plan;
}

std::unique_ptr<PhaseScript> MakeProbePhase(const v1::Probe& config) {
  return std::make_unique<ProbePhase>(config);
}

std::unique_ptr<PhaseScript> MakeEvaluatePhase(const v1::Evaluate& config) {
  return std::make_unique<EvaluatePhase>(config);
}

}  // namespace leeway
