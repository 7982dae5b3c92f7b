// The last phase of a run, and after it one round for the loss of the final model.
#include <utility>

#include "common/status.h"
#include "records/who_pays.h"
#include "server/phase.h"

namespace leeway {
namespace {

class FinalLossPhase : public PhaseScript {
 public:
  FinalLossPhase(std::unique_ptr<PhaseScript> last, const v1::Phase& config)
      : last_(std::move(last)), rounds_(config.train().rounds()), aside_(RoundsAside(config)) {}

  RoundPlan Next(const RunContext& run, uint64_t rounds_done) const override {
    if (!over_) return last_->Next(run, rounds_done);
    RoundPlan plan;
    plan.record.set_kind(v1::FINAL_LOSS_ROUND);
    plan.sample = run.config.cohort().size();  // as for the loss of a training round
    plan.base = run.current;
    plan.rounds_in_phase = rounds_;
    // A measure after training has the number of the training round before it.
    if (rounds_ > 0) plan.round_in_phase = rounds_;
    return plan;
  }

  absl::StatusOr<bool> Absorb(RoundPlan& plan, const Tally& tally, uint64_t rounds_done,
                              RunContext& run) override {
    if (over_) return true;
    LEEWAY_ASSIGN_OR_RETURN(over_, last_->Absorb(plan, tally, rounds_done, run));
    return false;
  }

  uint64_t RoundsAsideSoFar(uint64_t rounds_done) const override {
    return over_ ? aside_ : last_->RoundsAsideSoFar(rounds_done);
  }

  bool keeps_state() const override { return last_->keeps_state(); }

  std::vector<double> Save() const override {
    std::vector<double> state = {over_ ? 1.0 : 0.0};
    if (over_) return state;
    const std::vector<double> last = last_->Save();
    state.insert(state.end(), last.begin(), last.end());
    return state;
  }
  absl::Status Restore(const std::vector<double>& state, const RunContext& run) override {
    if (state.empty()) return absl::DataLossError("saved state of the last phase is cut short");
    over_ = state[0] != 0;
    if (over_) return absl::OkStatus();
    return last_->Restore({state.begin() + 1, state.end()}, run);
  }

 private:
  const std::unique_ptr<PhaseScript> last_;
  const uint32_t rounds_;  // of training; 0 if the last phase is another
  const uint64_t aside_;   // rounds of the last phase that are, in all
  bool over_ = false;      // the last phase is; the round for the loss is left
};

}  // namespace

std::unique_ptr<PhaseScript> MakeFinalLossPhase(std::unique_ptr<PhaseScript> last,
                                                const v1::Phase& config) {
  return std::make_unique<FinalLossPhase>(std::move(last), config);
}

}  // namespace leeway
