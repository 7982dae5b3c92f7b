// Script: what the run does next. It walks the phases of a RunConfig, one after
// the other. Pure: no clock, threads or files. Not thread-safe.
#ifndef LEEWAY_SERVER_SCRIPT_H_
#define LEEWAY_SERVER_SCRIPT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model.h"
#include "common/model_layout.h"
#include "common/tally.h"
#include "proto/record.pb.h"
#include "proto/run.pb.h"
#include "server/phase.h"

namespace leeway {

class Script {
 public:
  // At the start of the run. `clients` is how many are present, `examples` what
  // they hold together (0: one each), `initial` the model to start from (null: one
  // drawn by the seed).
  Script(v1::RunConfig config, ModelLayout layout, uint64_t clients, uint64_t examples = 0,
         ModelPtr initial = nullptr);
  // Where an earlier process stopped; `load` finds model files by sha256.
  static absl::StatusOr<Script> Resume(
      v1::RunConfig config, ModelLayout layout, uint64_t clients, const v1::ScriptState& state,
      const std::function<absl::StatusOr<std::string>(const std::string&)>& load,
      uint64_t examples = 0);

  // An epoch has begun: from now on the measures are about these clients.
  void SetPopulation(uint64_t clients, uint64_t examples) {
    run_.clients = clients;
    run_.examples = examples;
  }
  // The model of config.baseline. An error if it is of another shape than the run's, or if an
  // evaluation names tensors that the run's model does not have.
  absl::Status SetBaseline(ModelPtr baseline);

  bool done() const { return phase_ == nullptr; }
  // The next round: a pure function of the state. Not when done().
  RoundPlan Next() const;
  // Must the round be taken once more, by another plan, before its sums may count?
  bool MustRepeat(const RoundPlan& plan, const Tally& tally, double largest_norm) {
    return phase_->MustRepeat(plan, tally, largest_norm);
  }
  // The sums of that round. Completes its record and moves on. An error means
  // that the run cannot go on (divergence), with the remedy in its message. The
  // workers, if any, share long loops; they change no bit.
  absl::Status Absorb(RoundPlan& plan, const Tally& tally, Workers* workers = nullptr);

  // The round from which on clients keep a state: the phase's first. 0: they keep none.
  uint64_t states_since() const {
    return phase_ && phase_->keeps_state() ? round_ - round_in_phase_ + 1 : 0;
  }
  v1::ScriptState Save() const;
  // The models with names of their own.
  const ModelPtr& initial() const { return run_.initial; }
  const ModelPtr& current() const { return run_.current; }
  const ModelPtr& optimum() const { return run_.optimum; }  // null before its phase

 private:
  void EnterPhase();
  // Rounds so far that are aside (records/who_pays.h).
  uint64_t RoundsAsideSoFar() const;

  RunContext run_;
  uint32_t index_ = 0;                  // of the current phase
  uint64_t round_in_phase_ = 0;         // committed rounds of this phase
  uint64_t round_ = 0;                  // committed rounds of the run
  std::unique_ptr<PhaseScript> phase_;  // null when done
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_SCRIPT_H_
