// The release test: what rounds of local steps lose against the same steps averaged one by one,
// from the same model. It leaves the current model as it is.
#include <cmath>
#include <optional>

#include "common/status.h"
#include "common/sums.h"
#include "records/release_config.h"
#include "server/phase.h"
#include "server/release_measures.h"
#include "server/who_pays_search.h"

namespace leeway {
namespace {

constexpr size_t kComparisonSize = 6;  // numbers of a saved Comparison

std::vector<double> Numbers(const Comparison& one) {
  return {one.synchronised_loss, one.loss_standard_error,         one.difference,
          one.standard_error,    static_cast<double>(one.losers), static_cast<double>(one.clients)};
}

Comparison FromNumbers(const double* from) {
  return {from[0],
          from[1],
          from[2],
          from[3],
          static_cast<uint32_t>(from[4]),
          static_cast<uint32_t>(from[5])};
}

// The rounds of a test, in this order: one at the initial model, for the yardstick; then for
// every repeat and every H, smallest first, branch A from its start, branch B on from where
// the last H left it, and both ends compared; in the last repeat who pays is counted, too.
class ReleasePhase : public PhaseScript {
 public:
  ReleasePhase(const v1::ReleaseTest& config, const RunContext& run)
      : config_(config),
        layout_(run.layout),
        start_(run.At(config.point())),
        local_(start_),
        synchronised_(start_) {
    found_.resize(static_cast<size_t>(config.steps_size()));
  }

  RoundPlan Next(const RunContext& run, uint64_t rounds_done) const override {
    RoundPlan plan;
    plan.record.set_kind(v1::RELEASE_ROUND);
    plan.record.set_point(config_.point());
    plan.sample = config_.clients();
    const uint64_t counted = rounds_done - aside_;
    plan.cohort_of_rounds_ago = rounds_done;
    plan.rounds_in_phase = RoundsOf(config_);
    if (stage_ == Stage::kYardstick) {
      AskForTargets(run.config.model(), plan.task);
      plan.base = run.initial;
    } else if (stage_ == Stage::kCompare) {
      Ask(kLossDifference, plan.task);
      AskAbove(kLossDifferenceAbove, 0, plan.task);
      plan.base = synchronised_;
      plan.others[kOtherModel] = local_;
    } else if (stage_ == Stage::kCount) {
      counting_->Ask(local_, synchronised_, plan);
    } else {
      const bool local = stage_ == Stage::kLocal;
      v1::LocalRule& rule = *plan.task.mutable_rule();
      rule.set_step_size(run.StepSize(config_.step_size(), *config_.steps().rbegin()));
      rule.set_steps(local ? H() : 1);
      rule.set_batch_size(config_.batch_size());
      if (config_.batch_size() > 0) {
        // The same batches in both branches and for every H: what they differ by is not chance.
        plan.batches_of_rounds_ago = counted - FirstOfRepeat();
        plan.batch_step = rounds_ * rule.steps();
      }
      Ask(kDisplacement, plan.task);
      plan.base = local ? local_ : synchronised_;
      // With full batches the loss comes with the first step.
      plan.without_loss = config_.batch_size() > 0 && !AtStart();
    }
    return plan;
  }

  absl::StatusOr<bool> Absorb(RoundPlan& plan, const Tally& tally, uint64_t,
                              RunContext& run) override {
    if (stage_ == Stage::kYardstick) {
      constant_loss_ = Yardstick(plan, tally, run);
      stage_ = Stage::kLocal;
      return false;
    }
    if (stage_ == Stage::kLocal) {
      if (AtStart()) start_loss_ = plan.record.loss();
      LEEWAY_ASSIGN_OR_RETURN(local_, Step(plan.task, tally, *local_, run));
      if (++rounds_ < config_.rounds()) return false;
      // Branch B goes on from where it was compared with a smaller H.
      const uint64_t before = index_ == 0 ? 0 : config_.steps(static_cast<int>(index_) - 1);
      rounds_ = config_.rounds() * before;
      stage_ = Stage::kSynchronised;
      return false;
    }
    if (stage_ == Stage::kSynchronised) {
      LEEWAY_ASSIGN_OR_RETURN(synchronised_, Step(plan.task, tally, *synchronised_, run));
      if (++rounds_ == uint64_t{config_.rounds()} * H()) stage_ = Stage::kCompare;
      return false;
    }
    if (stage_ == Stage::kCount) {
      ++aside_;
      counting_->Absorb(H(), tally, plan);
      if (!counting_->done()) return false;
      counting_.reset();
      return GoOn();
    }
    return Compare(plan, tally, run);
  }

  uint64_t RoundsAsideSoFar(uint64_t) const override { return aside_; }

  std::vector<double> Save() const override {
    std::vector<double> out = {static_cast<double>(stage_),
                               static_cast<double>(index_),
                               static_cast<double>(repeat_),
                               static_cast<double>(rounds_),
                               constant_loss_,
                               start_loss_,
                               static_cast<double>(aside_)};
    const std::vector<double> counting = counting_ ? counting_->Save() : std::vector<double>();
    out.push_back(static_cast<double>(counting.size()));
    out.insert(out.end(), counting.begin(), counting.end());
    for (const std::vector<Comparison>& repeats : found_) {
      out.push_back(static_cast<double>(repeats.size()));
      for (const Comparison& one : repeats) {
        const std::vector<double> numbers = Numbers(one);
        out.insert(out.end(), numbers.begin(), numbers.end());
      }
    }
    for (const ModelPtr& model : {local_, synchronised_}) {
      const Vector<double> values = ValuesOf(layout_, *model);
      out.insert(out.end(), values.data(), values.data() + values.size());
    }
    return out;
  }

  absl::Status Restore(const std::vector<double>& state, const RunContext& run) override;

 private:
  enum class Stage { kYardstick, kLocal, kSynchronised, kCompare, kCount };

  static absl::StatusOr<ModelPtr> Step(const v1::Task& task, const Tally& tally, const Model& model,
                                       const RunContext& run) {
    return Average(task, tally, model, run, "the release test", "release.step_size");
  }

  // The first round of this repeat, among those of the test: one for the yardstick comes before.
  uint64_t FirstOfRepeat() const {
    return 1 + repeat_ * ((RoundsOf(config_) - RoundsAside(config_) - 1) / config_.repeats());
  }
  uint32_t H() const { return config_.steps(static_cast<int>(index_)); }
  // At the first round of all that takes steps.
  bool AtStart() const {
    return stage_ == Stage::kLocal && rounds_ == 0 && index_ == 0 && repeat_ == 0;
  }

  // What to compare losses with: the best constant answer or, where nobody knows it, the
  // initial model.
  double Yardstick(const RoundPlan& plan, const Tally& tally, const RunContext& run) const {
    if (config_.constant_loss() > 0) return config_.constant_loss();
    return ConstantOrInitialLoss(run.config.model(), plan, tally);
  }

  // True when the test is over.
  bool Compare(RoundPlan& plan, const Tally& tally, const RunContext& run) {
    std::vector<Comparison>& repeats = found_[index_];
    repeats.push_back(ReadComparison(plan.task, tally, plan.record));
    const bool last = repeat_ + 1 == config_.repeats();
    if (last) {
      v1::ReleaseResult& result = *plan.record.mutable_release();
      result = Conclude(repeats, start_loss_, constant_loss_, config_.batch_size() > 0);
      result.set_h(H());
      result.set_step_size(run.StepSize(config_.step_size(), *config_.steps().rbegin()));
      result.set_rounds(config_.rounds());
    }
    if (!last || config_.who_pays_off()) return GoOn();
    counting_.emplace(std::abs(start_loss_) + std::abs(plan.record.loss()) +
                          (std::isfinite(constant_loss_) ? std::abs(constant_loss_) : 0),
                      run);
    stage_ = Stage::kCount;
    return false;
  }

  // To the next number of steps, or to the next repeat. True when the test is over.
  bool GoOn() {
    stage_ = Stage::kLocal;
    rounds_ = 0;
    local_ = start_;
    if (++index_ < static_cast<uint32_t>(config_.steps_size())) return false;
    index_ = 0;
    synchronised_ = start_;
    return ++repeat_ >= config_.repeats();
  }

  v1::ReleaseTest config_;
  ModelLayout layout_;
  ModelPtr start_;
  ModelPtr local_;         // branch A
  ModelPtr synchronised_;  // branch B
  Stage stage_ = Stage::kYardstick;
  uint32_t index_ = 0;  // into config_.steps
  uint32_t repeat_ = 0;
  uint64_t rounds_ = 0;  // of the branch under way
  double constant_loss_ = 0;
  double start_loss_ = 0;
  uint64_t aside_ = 0;                          // rounds of counting so far
  std::optional<WhoPaysSearch> counting_;       // under way
  std::vector<std::vector<Comparison>> found_;  // of each H, one for each repeat
};

absl::Status ReleasePhase::Restore(const std::vector<double>& state, const RunContext& run) {
  constexpr size_t kFixed = 8;
  const absl::Status cut = absl::DataLossError("saved release test is cut short");
  size_t next = kFixed;
  if (state.size() < kFixed) return cut;
  stage_ = static_cast<Stage>(static_cast<int>(state[0]));
  index_ = static_cast<uint32_t>(state[1]);
  repeat_ = static_cast<uint32_t>(state[2]);
  rounds_ = static_cast<uint64_t>(state[3]);
  constant_loss_ = state[4];
  start_loss_ = state[5];
  aside_ = static_cast<uint64_t>(state[6]);
  const auto counting = static_cast<size_t>(state[7]);
  if (next + counting > state.size()) return cut;
  if (counting > 0) {
    counting_.emplace(1, run);
    LEEWAY_RETURN_IF_ERROR(counting_->Restore(absl::MakeSpan(&state[next], counting), run));
    next += counting;
  }
  for (std::vector<Comparison>& repeats : found_) {
    if (next >= state.size()) return cut;
    const auto count = static_cast<size_t>(state[next++]);
    if (next + count * kComparisonSize > state.size()) return cut;
    repeats.clear();
    for (size_t i = 0; i < count; ++i, next += kComparisonSize) {
      repeats.push_back(FromNumbers(&state[next]));
    }
  }
  const size_t size = run.layout.size();
  if (state.size() != next + 2 * size) return cut;
  for (ModelPtr* model : {&local_, &synchronised_}) {
    const Eigen::Map<const Vector<double>> values(&state[next], static_cast<Eigen::Index>(size));
    *model = MakeModel(run.layout, Vector<double>(values));
    next += size;
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<PhaseScript> MakeReleasePhase(const v1::ReleaseTest& config,
                                              const RunContext& run) {
  return std::make_unique<ReleasePhase>(config, run);
}

}  // namespace leeway
