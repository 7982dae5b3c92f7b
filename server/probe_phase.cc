// Measures without moving the model: drift probes and evaluations.
#include <algorithm>
#include <cmath>
#include <limits>

#include "common/sums.h"
#include "server/measures.h"
#include "server/phase.h"
#include "server/scale.h"
#include "server/test_measures.h"
#include "server/threshold_search.h"

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

// Every client's loss at the evaluated model is compared with that at the other one.
void AskForComparison(const ModelPtr& other, RoundPlan& plan) {
  constexpr double kEverything = std::numeric_limits<double>::lowest();
  constexpr double kBelowZero = -std::numeric_limits<double>::denorm_min();
  Ask(kTestDifference, plan.task);
  Ask(kTestDifferenceSquared, plan.task);
  for (const double t : {kEverything, 0.0, kBelowZero}) {
    AskAbove(kTestDifferenceAbove, t, plan.task);
  }
  plan.others[kOtherModel] = other;
}

// Of the clients alone: an evaluator's test set is nobody's own.
void FillComparison(const Tally& tally, RoundPlan& plan) {
  const TaskSums sums(plan.task, tally.shape().dimension);
  const auto number = [&](const char* name, size_t further = 0) {
    return tally.number(kClientGroup, static_cast<size_t>(sums.number(name)) + further);
  };
  const auto count = [&](size_t threshold) { return number(kTestDifferenceAbove, threshold); };
  const double clients = count(0);
  if (clients < 1) return;
  v1::Comparison& out = *plan.record.mutable_comparison();
  out.set_clients(static_cast<uint32_t>(clients));
  out.set_losers(static_cast<uint32_t>(count(1)));
  out.set_winners(static_cast<uint32_t>(clients - count(2)));
  const double mean = number(kTestDifference) / clients;
  const double spread = number(kTestDifferenceSquared) / clients - mean * mean;
  out.set_difference(mean);
  out.set_standard_error(clients > 1 ? std::sqrt(std::max(spread, 0.0) / (clients - 1))
                                     : std::numeric_limits<double>::quiet_NaN());
  out.set_other_sha256(plan.others[kOtherModel]->sha256);
}

// 1 for each parameter of the tensors that fine-tuning moves, else 0.
ModelPtr MovedParameters(const v1::Evaluate& config, const ModelLayout& layout) {
  Vector<double> moved = Vector<double>::Zero(static_cast<Eigen::Index>(layout.size()));
  Eigen::Index begin = 0;
  for (const TensorSpec& tensor : layout.tensors) {
    const auto size = static_cast<Eigen::Index>(tensor.size());
    const auto& names = config.fine_tune_tensors();
    if (std::find(names.begin(), names.end(), tensor.name) != names.end()) {
      moved.segment(begin, size).setOnes();
    }
    begin += size;
  }
  return MakeModel(layout, moved);
}

// One round, and for percentiles over clients some more: by counts of clients above
// thresholds, which close in on each percentile of the accuracy, then of the loss.
class EvaluatePhase : public PhaseScript {
 public:
  explicit EvaluatePhase(const v1::Evaluate& config)
      : config_(config), searches_(Fresh(Stage::kAccuracy)) {}

  RoundPlan Next(const RunContext& run, uint64_t) const override {
    RoundPlan plan = PlanEvaluation(config_.point(), run);
    plan.rounds_in_phase = config_.percentiles().empty() ? 1 : 0;
    if (config_.has_fine_tune()) *plan.task.mutable_rule() = config_.fine_tune();
    if (!config_.fine_tune_tensors().empty()) {
      plan.others[kMovedParameters] = MovedParameters(config_, run.layout);
    }
    if (stage_ == Stage::kPooled) {
      if (run.baseline || config_.has_fine_tune()) {
        AskForComparison(run.baseline ? run.baseline : plan.base, plan);
      }
      return plan;
    }
    // Every client with a test part is above -1; for the accuracy any evaluation asks for it.
    if (stage_ == Stage::kLoss) AskAbove(Count(), kWithTestPart, plan.task);
    for (const ThresholdSearch& search : searches_) {
      for (const double t : search.thresholds()) AskAbove(Count(), t, plan.task);
    }
    return plan;
  }

  absl::StatusOr<bool> Absorb(RoundPlan& plan, const Tally& tally, uint64_t, RunContext&) override {
    if (stage_ == Stage::kPooled && plan.others.contains(kOtherModel)) FillComparison(tally, plan);
    if (config_.percentiles().empty() || plan.record.test_examples() == 0) return true;
    if (stage_ == Stage::kPooled) {
      stage_ = Stage::kAccuracy;
      return false;
    }
    Narrow(plan.task, tally);
    if (!std::all_of(searches_.begin(), searches_.end(),
                     [](const ThresholdSearch& search) { return search.done(); })) {
      return false;
    }
    for (const ThresholdSearch& search : searches_) {
      found_.push_back(search.low() > 0 ? search.high() : 0);
    }
    if (stage_ == Stage::kAccuracy) {
      stage_ = Stage::kLoss;
      searches_ = Fresh(stage_);
      return false;
    }
    const int count = config_.percentiles_size();
    for (int i = 0; i < count; ++i) {
      v1::ClientPercentile& out = *plan.record.add_percentiles();
      out.set_percent(config_.percentiles(i));
      out.set_accuracy(found_[static_cast<size_t>(i)]);
      out.set_loss(found_[static_cast<size_t>(count + i)]);
    }
    return true;
  }

  std::vector<double> Save() const override {
    std::vector<double> out = {static_cast<double>(stage_)};
    for (const ThresholdSearch& search : searches_) {
      out.insert(out.end(), {search.low(), search.high(), static_cast<double>(search.rounds())});
    }
    out.insert(out.end(), found_.begin(), found_.end());
    return out;
  }
  absl::Status Restore(const std::vector<double>& state, const RunContext&) override {
    const size_t searches = 1 + 3 * searches_.size();
    if (state.size() < searches) return absl::DataLossError("saved percentiles are cut short");
    stage_ = static_cast<Stage>(static_cast<int>(state[0]));
    for (size_t i = 0; i < searches_.size(); ++i) {
      const double* one = state.data() + 1 + 3 * i;
      searches_[i] = ThresholdSearch(one[0], one[1], static_cast<int>(one[2]));
    }
    found_.assign(state.begin() + static_cast<std::ptrdiff_t>(searches), state.end());
    return absl::OkStatus();
  }

 private:
  enum class Stage { kPooled, kAccuracy, kLoss };
  const char* Count() const { return stage_ == Stage::kAccuracy ? kAccuracyAbove : kTestLossAbove; }

  std::vector<ThresholdSearch> Fresh(Stage stage) const {
    // An accuracy is at most 1.
    return std::vector<ThresholdSearch>(
        static_cast<size_t>(config_.percentiles_size()),
        stage == Stage::kAccuracy ? ThresholdSearch(0, 1, 0) : ThresholdSearch());
  }

  // The p-th percentile of n clients is the k-th smallest value, k = ceil(p n / 100):
  // it is above t if fewer than k clients are not.
  void Narrow(const v1::Task& task, const Tally& tally) {
    const TaskSums sums(task, tally.shape().dimension);
    const auto first = static_cast<size_t>(sums.number(Count()));
    const auto above = [&](size_t j) { return tally.number(kClientGroup, first + j); };
    const double clients = above(0);
    size_t next = 1;
    for (size_t i = 0; i < searches_.size(); ++i) {
      const double share = config_.percentiles(static_cast<int>(i)) / 100;
      const double rank = std::max(1.0, std::ceil(share * clients - 1e-9));
      std::vector<bool> answers;
      const size_t asked = searches_[i].thresholds().size();
      for (size_t j = 0; j < asked; ++j) answers.push_back(clients - above(next++) < rank - 0.5);
      if (!searches_[i].done()) searches_[i].Narrow(answers);
    }
  }

  v1::Evaluate config_;
  Stage stage_ = Stage::kPooled;
  std::vector<ThresholdSearch> searches_;  // one for each percentile
  std::vector<double> found_;              // accuracies, then losses
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
  // Both in units of the gradient: a displacement is step_size times as long.
  const double largest = LargestGradient(run, MaxUpdate(run.config) / rule.step_size());
  Ask(kGradient, plan.task).set_largest(largest);
  for (const uint32_t h : probe.steps()) Ask(kDrift, plan.task, h).set_largest(largest);
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
  AskForTests(run.config.model(), plan.task);
  plan.task.set_groups(kEvaluatorGroup + 1);
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
