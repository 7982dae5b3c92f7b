// Rounds of FedAvg, and the measures that are taken while training.
#include <algorithm>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/sums.h"
#include "records/release_config.h"
#include "records/who_pays.h"
#include "server/median_limit.h"
#include "server/phase.h"
#include "server/scale.h"
#include "server/server_algorithm.h"
#include "server/server_optimizer.h"
#include "server/step_schedule.h"

namespace leeway {
namespace {

// The saved state of a training is that of its parts, each after its size.
void AddPart(const std::vector<double>& part, std::vector<double>& state) {
  state.push_back(static_cast<double>(part.size()));
  state.insert(state.end(), part.begin(), part.end());
}

absl::StatusOr<std::vector<double>> TakePart(const std::vector<double>& state, size_t& at) {
  const double size = at < state.size() ? state[at] : -1;
  if (!(size >= 0 && size <= static_cast<double>(state.size() - at - 1))) {
    return absl::DataLossError("saved state of a training is cut short");
  }
  const auto begin = state.begin() + static_cast<std::ptrdiff_t>(at) + 1;
  at += 1 + static_cast<size_t>(size);
  return std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(size));
}

class TrainPhase : public PhaseScript {
 public:
  TrainPhase(const v1::Train& config, const RunContext& run)
      : config_(config),
        optimizer_(MakeServerOptimizer(config.server())),
        release_rounds_(config.has_release() ? RoundsOf(config.release()) : 0),
        algorithm_(MakeServerAlgorithm(config.local(), run)) {
    const v1::Limits& limits = run.config.limits();
    const bool unlimited = limits.has_median_multiple() && limits.median_multiple() == 0;
    if (!unlimited && limits.max_norm() == 0) {
      limit_.emplace(limits.median_multiple(), MaxUpdate(run.config));
    }
    if (!config.local().has_auto_steps()) return;
    const bool sampled = run.config.cohort().size() > 0 && run.config.cohort().size() < run.clients;
    schedule_.emplace(config.local().auto_steps().largest(),
                      !sampled && config.local().batch_size() == 0);
  }

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
      case v1::RELEASE_ROUND:
        plan = (release_ ? *release_ : *MakeReleasePhase(config_.release(), run))
                   .Next(run, slot.before);
        break;
      default:
        plan = PlanTraining(run, slot.trained);
    }
    plan.round_in_phase = slot.trained + (slot.kind == v1::TRAIN_ROUND ? 1 : 0);
    plan.rounds_in_phase = config_.rounds();
    return plan;
  }

  // The first round has no limit. If one of its displacements is beyond the limit that follows
  // from them all, none counts, and the round is taken again with that limit. If half of the
  // clients of a later round are at its limit, the median itself has grown: it is taken again
  // without.
  bool MustRepeat(const RoundPlan& plan, const Tally& tally, double largest_norm) override {
    if (!limit_ || plan.record.kind() != v1::TRAIN_ROUND) return false;
    if (plan.task.max_norm() > 0) {
      if (2 * uint64_t{MedianLimit::Clipped(plan.task, tally)} < tally.clients()) return false;
      limit_->Forget();
      return true;
    }
    MedianLimit known = *limit_;
    known.Absorb(plan.task, tally);
    if (!known.IsExceeded(plan.task, tally, largest_norm)) return false;
    limit_.emplace(known);
    return true;
  }

  absl::StatusOr<bool> Absorb(RoundPlan& plan, const Tally& tally, uint64_t rounds_done,
                              RunContext& run) override {
    if (plan.record.kind() == v1::TRAIN_ROUND) {
      if (limit_) {
        plan.record.set_norm_limit(plan.task.max_norm());
        plan.record.set_clipped(MedianLimit::Clipped(plan.task, tally));
        limit_->Absorb(plan.task, tally);
      }
      if (schedule_) schedule_->Absorb(plan.record.loss(), GuaranteedDecrease(plan, tally, run));
      LEEWAY_RETURN_IF_ERROR(Move(plan, tally, run));
      if (algorithm_) algorithm_->Absorb(plan, tally, run);
    }
    if (plan.record.kind() == v1::RELEASE_ROUND) {
      if (!release_) release_ = MakeReleasePhase(config_.release(), run);
      LEEWAY_ASSIGN_OR_RETURN(const bool tested, release_->Absorb(plan, tally, rounds_done, run));
      if (tested) release_.reset();
    }
    // The measures after the last training round are the end.
    return rounds_done + 1 >= Before(uint64_t{config_.rounds()} + 1);
  }

  uint64_t RoundsAsideSoFar(uint64_t rounds_done) const override {
    const Slot slot = SlotAt(rounds_done);
    const auto& at = config_.release_at();
    // A test comes last of what is measured after a training round.
    const auto tests = static_cast<uint64_t>(
        (slot.kind == v1::TRAIN_ROUND ? std::upper_bound(at.begin(), at.end(), slot.trained)
                                      : std::lower_bound(at.begin(), at.end(), slot.trained)) -
        at.begin());
    const uint64_t here = release_ ? release_->RoundsAsideSoFar(slot.before) : 0;
    return tests * RoundsAside(config_.release()) + here;
  }

  bool keeps_state() const override { return algorithm_ && algorithm_->keeps_state(); }

  std::vector<double> Save() const override {
    std::vector<double> state;
    AddPart(schedule_ ? schedule_->Save() : std::vector<double>(), state);
    AddPart(release_ ? release_->Save() : std::vector<double>(), state);
    AddPart(optimizer_->Save(), state);
    AddPart(algorithm_ ? algorithm_->Save() : std::vector<double>(), state);
    AddPart(limit_ ? limit_->Save() : std::vector<double>(), state);
    return state;
  }
  absl::Status Restore(const std::vector<double>& state, const RunContext& run) override {
    size_t at = 0;
    LEEWAY_ASSIGN_OR_RETURN(const std::vector<double> schedule, TakePart(state, at));
    LEEWAY_ASSIGN_OR_RETURN(const std::vector<double> release, TakePart(state, at));
    LEEWAY_ASSIGN_OR_RETURN(const std::vector<double> optimizer, TakePart(state, at));
    LEEWAY_ASSIGN_OR_RETURN(const std::vector<double> algorithm, TakePart(state, at));
    // A run of an earlier version has saved no limit.
    std::vector<double> limit;
    if (at < state.size()) {
      LEEWAY_ASSIGN_OR_RETURN(limit, TakePart(state, at));
    }
    if (limit_) LEEWAY_RETURN_IF_ERROR(limit_->Restore(limit));
    if (schedule_) LEEWAY_RETURN_IF_ERROR(schedule_->Restore(schedule));
    if (!release.empty()) {
      release_ = MakeReleasePhase(config_.release(), run);
      LEEWAY_RETURN_IF_ERROR(release_->Restore(release, run));
    }
    if (!algorithm.empty()) {
      if (!algorithm_ || algorithm.size() != run.layout.size()) {
        return absl::DataLossError("saved state of an algorithm that the config does not have");
      }
      algorithm_->Restore(algorithm, run);
    }
    return optimizer_->Restore(optimizer, run.layout.size());
  }

 private:
  // What a round of the phase is for, how many training rounds come before it and, of a
  // release test, how many of its own.
  struct Slot {
    v1::RoundKind kind;
    uint64_t trained;
    uint64_t before = 0;
  };

  bool ProbeAfter(uint64_t trained) const {
    return std::binary_search(config_.probe_at().begin(), config_.probe_at().end(), trained);
  }
  bool ReleaseAfter(uint64_t trained) const {
    return std::binary_search(config_.release_at().begin(), config_.release_at().end(), trained);
  }
  bool EvaluateAfter(uint64_t trained) const {
    return trained > 0 && config_.evaluate_every() > 0 && trained % config_.evaluate_every() == 0;
  }

  // Rounds of the phase before the first that sees the model after `trained`
  // training rounds.
  uint64_t Before(uint64_t trained) const {
    const auto earlier = [trained](const auto& at) {
      return static_cast<uint64_t>(std::lower_bound(at.begin(), at.end(), trained) - at.begin());
    };
    const uint64_t evaluations =
        trained > 0 && config_.evaluate_every() > 0 ? (trained - 1) / config_.evaluate_every() : 0;
    return trained + earlier(config_.probe_at()) + evaluations +
           earlier(config_.release_at()) * release_rounds_;
  }

  // After every training round come its probe, its evaluation and its release test, if asked for.
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
    if (ReleaseAfter(low) && ahead < release_rounds_) return {v1::RELEASE_ROUND, low, ahead};
    return {v1::TRAIN_ROUND, low};
  }

  RoundPlan PlanTraining(const RunContext& run, uint64_t trained) const {
    RoundPlan plan;
    plan.record.set_kind(v1::TRAIN_ROUND);
    plan.record.set_server_rate(config_.server().rate());
    v1::LocalRule& rule = *plan.task.mutable_rule();
    rule = config_.local();
    rule.set_step_size(run.StepSize(rule.step_size(), MostSteps(rule)));
    Ask(kDisplacement, plan.task);
    if (schedule_) {
      rule.clear_auto_steps();
      rule.set_steps(schedule_->steps());
      Ask(kGradient, plan.task)
          .set_largest(LargestGradient(run, MaxUpdate(run.config) / rule.step_size()));
    }
    if (!config_.drift_off() && trained % config_.drift_every() == 0) {
      Ask(kDrift, plan.task)
          .set_largest(LargestGradient(run, MaxUpdate(run.config) / plan.task.rule().step_size()));
    }
    plan.without_loss = config_.loss_off() || trained % config_.loss_every() != 0;
    // Clients with training loops of their own cannot tell drift, but how far they agree.
    if (run.config.model().has_file()) Ask(kDisplacementSquared, plan.task);
    for (const std::string& name : config_.metrics()) Ask(absl::StrCat(kMetric, name), plan.task);
    plan.sample = run.config.cohort().size();
    plan.base = run.current;
    // A control variate is the mean over these clients, and a schedule compares their losses.
    plan.may_begin_epoch = !keeps_state() && !schedule_;
    if (limit_) limit_->Ask(plan.task);
    // The drift that is asked for is that of the algorithm's own path.
    if (algorithm_) algorithm_->Complete(run, plan);
    return plan;
  }

  // By one gradient step at the round's starting model: eta/2 |grad F|^2. The cohort's mean
  // gradient is longer than the population's by what sampling adds.
  static double GuaranteedDecrease(const RoundPlan& plan, const Tally& tally,
                                   const RunContext& run) {
    const v1::RoundRecord& record = plan.record;
    double squared = record.gradient_norm() * record.gradient_norm();
    const auto reports = static_cast<double>(tally.clients());
    if (tally.clients() > 1 && tally.clients() < run.clients) {
      const double left_out = 1 - reports / static_cast<double>(run.clients);
      squared -= left_out * record.dissimilarity() / (reports - 1);
    }
    return plan.task.rule().step_size() / 2 * std::max(squared, 0.0);
  }

  // The server optimizer moves the model by the average displacement.
  absl::Status Move(const RoundPlan& plan, const Tally& tally, RunContext& run) {
    const TaskSums sums(plan.task, run.layout.size());
    const auto displacement = static_cast<size_t>(sums.vector(kDisplacement));
    optimizer_->Begin(run.layout.size());
    const ServerAlgorithm::Correction correct =
        algorithm_ ? algorithm_->MakeCorrection(plan, tally, run) : nullptr;
    std::atomic<bool> finite = true;
    ModelPtr next = ChangeModel(
        run.layout, *run.current, run.workers, [&](size_t begin, absl::Span<double> values) {
          const auto size = static_cast<Eigen::Index>(values.size());
          double space[kMostChanged];
          tally.Read(displacement, begin, absl::MakeSpan(space, values.size()));
          Eigen::Map<Vector<double>> mean(space, size);
          mean /= static_cast<double>(tally.weight());
          if (correct) correct(begin, mean);
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
  std::optional<StepSchedule> schedule_;        // with auto_steps
  std::optional<MedianLimit> limit_;            // of displacements, if it comes from their median
  const uint64_t release_rounds_;               // of one test
  std::unique_ptr<PhaseScript> release_;        // a test under way; null between two
  std::unique_ptr<ServerAlgorithm> algorithm_;  // null: none
};

}  // namespace

std::unique_ptr<PhaseScript> MakeTrainPhase(const v1::Train& config, RunContext& run) {
  run.current = run.At(config.start());
  return std::make_unique<TrainPhase>(config, run);
}

}  // namespace leeway
