// Rounds of FedAvg, and the measures that are taken while training.
#include <algorithm>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/sums.h"
#include "server/phase.h"
#include "server/server_algorithm.h"
#include "server/server_optimizer.h"

namespace leeway {
namespace {

class TrainPhase : public PhaseScript {
 public:
  TrainPhase(const v1::Train& config, const RunContext& run)
      : config_(config),
        optimizer_(MakeServerOptimizer(config.server())),
        algorithm_(MakeServerAlgorithm(config.local(), run)) {}

  RoundPlan Next(const RunContext& run, uint64_t rounds_done) const override {
    const Slot slot = SlotAt(rounds_done);
    RoundPlan plan;
    switch (slot.kind) {
      case v1::PROBE_ROUND:
        plan = PlanProbe(config_.probe(), run);
        break;
      case v1::EVALUATE_ROUND:
        plan = PlanEvaluation(v1::Probe::CURRENT, run);
        break;
      default:
        plan = PlanTraining(run, slot.trained);
    }
    plan.round_in_phase = slot.trained + (slot.kind == v1::TRAIN_ROUND ? 1 : 0);
    plan.rounds_in_phase = config_.rounds();
    return plan;
  }

  absl::StatusOr<bool> Absorb(RoundPlan& plan, const Tally& tally, uint64_t rounds_done,
                              RunContext& run) override {
    if (plan.record.kind() == v1::TRAIN_ROUND) {
      LEEWAY_RETURN_IF_ERROR(Move(plan, tally, run));
      if (algorithm_) algorithm_->Absorb(plan, tally, run);
    }
    // The measures after the last training round are the end.
    return rounds_done + 1 >= Before(uint64_t{config_.rounds()} + 1);
  }

  bool keeps_state() const override { return algorithm_ && algorithm_->keeps_state(); }

  // The optimizer's state and then the algorithm's.
  std::vector<double> Save() const override {
    std::vector<double> state = optimizer_->Save();
    if (algorithm_) {
      const std::vector<double> own = algorithm_->Save();
      state.insert(state.end(), own.begin(), own.end());
    }
    return state;
  }
  absl::Status Restore(const std::vector<double>& state, const RunContext& run) override {
    const size_t dimension = run.layout.size();
    if (!algorithm_ || state.size() < dimension) return optimizer_->Restore(state, dimension);
    const auto own = state.end() - static_cast<std::ptrdiff_t>(dimension);
    algorithm_->Restore({own, state.end()}, run);
    return optimizer_->Restore({state.begin(), own}, dimension);
  }

 private:
  // What a round of the phase is for, and how many training rounds come before it.
  struct Slot {
    v1::RoundKind kind;
    uint64_t trained;
  };

  bool ProbeAfter(uint64_t trained) const {
    return std::binary_search(config_.probe_at().begin(), config_.probe_at().end(), trained);
  }
  bool EvaluateAfter(uint64_t trained) const {
    return trained > 0 && config_.evaluate_every() > 0 && trained % config_.evaluate_every() == 0;
  }

  // Rounds of the phase before the first that sees the model after `trained`
  // training rounds.
  uint64_t Before(uint64_t trained) const {
    const auto& at = config_.probe_at();
    const auto probes = std::lower_bound(at.begin(), at.end(), trained) - at.begin();
    const uint64_t evaluations =
        trained > 0 && config_.evaluate_every() > 0 ? (trained - 1) / config_.evaluate_every() : 0;
    return trained + static_cast<uint64_t>(probes) + evaluations;
  }

  // After every training round come its probe and its evaluation, if asked for.
  // Computed, not remembered: a resumed server needs no more than rounds_done.
  Slot SlotAt(uint64_t rounds_done) const {
    uint64_t low = 0;  // the last `trained` whose rounds begin at rounds_done or before
    uint64_t high = config_.rounds();
    while (low < high) {
      const uint64_t middle = high - (high - low) / 2;
      if (Before(middle) <= rounds_done) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    uint64_t ahead = rounds_done - Before(low);
    if (ProbeAfter(low) && ahead-- == 0) return {v1::PROBE_ROUND, low};
    if (EvaluateAfter(low) && ahead-- == 0) return {v1::EVALUATE_ROUND, low};
    return {v1::TRAIN_ROUND, low};
  }

  RoundPlan PlanTraining(const RunContext& run, uint64_t trained) const {
    RoundPlan plan;
    plan.record.set_kind(v1::TRAIN_ROUND);
    plan.record.set_server_rate(config_.server().rate());
    *plan.task.mutable_rule() = config_.local();
    plan.task.mutable_rule()->set_step_size(
        run.StepSize(config_.local().step_size(), config_.local().steps()));
    Ask(kDisplacement, plan.task);
    if (!config_.drift_off() && trained % config_.drift_every() == 0) {
      Ask(kDrift, plan.task).set_largest(run.config.max_update() / plan.task.rule().step_size());
    }
    // Clients with training loops of their own cannot tell drift, but how far they agree.
    if (run.config.model().has_file()) Ask(kDisplacementSquared, plan.task);
    plan.sample = run.config.cohort().size();
    plan.base = run.current;
    // The drift that is asked for is that of the algorithm's own path.
    if (algorithm_) algorithm_->Complete(run, plan);
    return plan;
  }

  // The server optimizer moves the model by the average displacement.
  absl::Status Move(const RoundPlan& plan, const Tally& tally, RunContext& run) {
    const TaskSums sums(plan.task, run.layout.size());
    const auto displacement = static_cast<size_t>(sums.vector(kDisplacement));
    optimizer_->Begin(run.layout.size());
    std::atomic<bool> finite = true;
    ModelPtr next = ChangeModel(
        run.layout, *run.current, run.workers, [&](size_t begin, absl::Span<double> values) {
          const auto size = static_cast<Eigen::Index>(values.size());
          double space[kMostChanged];
          tally.Read(displacement, begin, absl::MakeSpan(space, values.size()));
          Eigen::Map<Vector<double>> mean(space, size);
          mean /= static_cast<double>(tally.weight());
          Eigen::Map<Vector<double>> w(values.data(), size);
          optimizer_->Step(begin, mean, w);
          if (!w.allFinite()) finite = false;
        });
    if (!finite) {
      return absl::OutOfRangeError(
          absl::StrCat("training diverged in round ", plan.record.round_in_phase(),
                       ": the model is no longer finite; lower local.step_size or server.rate"));
    }
    run.current = std::move(next);
    return absl::OkStatus();
  }

  v1::Train config_;
  std::unique_ptr<ServerOptimizer> optimizer_;
  std::unique_ptr<ServerAlgorithm> algorithm_;  // null: none
};

}  // namespace

std::unique_ptr<PhaseScript> MakeTrainPhase(const v1::Train& config, RunContext& run) {
  run.current = run.At(config.start());
  return std::make_unique<TrainPhase>(config, run);
}

}  // namespace leeway
