// Measures without moving the model: drift probes and evaluations.
#include <algorithm>

#include "server/phase.h"

namespace leeway {
namespace {

constexpr uint32_t kGroups = 20;  // of a sampled probe, where the config does not say

class ProbePhase : public PhaseScript {
 public:
  explicit ProbePhase(const v1::Probe& config) : config_(config) {}

  RoundPlan Next(const RunContext& run, uint64_t) const override {
    const uint32_t steps = *config_.steps().rbegin();
    RoundPlan plan;
    plan.record.set_kind(v1::PROBE_ROUND);
    plan.record.set_point(config_.point());
    v1::LocalRule& rule = *plan.task.mutable_rule();
    rule.set_step_size(run.StepSize(config_.step_size(), steps));
    rule.set_steps(steps);
    rule.set_batch_size(config_.batch_size());
    plan.task.set_full_step(true);
    *plan.task.mutable_drift_steps() = config_.steps();
    plan.task.set_groups(Groups(run.clients));
    plan.task.set_repeats(config_.repeats());
    plan.sample = config_.clients();
    plan.rounds_in_phase = 1;
    plan.base = run.At(config_.point());
    return plan;
  }
  absl::StatusOr<bool> Absorb(RoundPlan&, const Tally&, uint64_t, RunContext&) override {
    return true;
  }

 private:
  // A delete-one-group jackknife wants at least two clients in every group.
  uint32_t Groups(uint64_t clients) const {
    const bool sampled = config_.clients() > 0 && config_.clients() < clients;
    const uint64_t sample = sampled ? config_.clients() : clients;
    const uint64_t wanted = config_.groups() > 0 ? config_.groups() : sampled ? kGroups : 1;
    return static_cast<uint32_t>(std::clamp<uint64_t>(sample / 2, 1, wanted));
  }

  v1::Probe config_;
};

class EvaluatePhase : public PhaseScript {
 public:
  explicit EvaluatePhase(const v1::Evaluate& config) : config_(config) {}

  RoundPlan Next(const RunContext& run, uint64_t) const override {
    RoundPlan plan;
    plan.record.set_kind(v1::EVALUATE_ROUND);
    plan.record.set_point(config_.point());
    plan.task.mutable_rule()->set_step_size(1);
    plan.task.set_evaluate(true);
    plan.rounds_in_phase = 1;
    plan.base = run.At(config_.point());
    return plan;
  }
  absl::StatusOr<bool> Absorb(RoundPlan&, const Tally&, uint64_t, RunContext&) override {
    return true;
  }

 private:
  v1::Evaluate config_;
};

}  // namespace

std::unique_ptr<PhaseScript> MakeProbePhase(const v1::Probe& config) {
  return std::make_unique<ProbePhase>(config);
}

std::unique_ptr<PhaseScript> MakeEvaluatePhase(const v1::Evaluate& config) {
  return std::make_unique<EvaluatePhase>(config);
}

}  // namespace leeway
