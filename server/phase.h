// A phase of the script in progress: it asks for rounds, one at a time, and moves
// on by the sums that come back. Pure: no clock, threads or files. One object
// lives for one phase. Not thread-safe.
#ifndef LEEWAY_SERVER_PHASE_H_
#define LEEWAY_SERVER_PHASE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model.h"
#include "common/model_layout.h"
#include "common/tally.h"
#include "common/workers.h"
#include "proto/federation.pb.h"
#include "proto/record.pb.h"
#include "proto/run.pb.h"

namespace leeway {

// Hessians up to this dimension are exchanged whole (the client's curvature.h
// computes exact spectra up to the same).
inline constexpr size_t kExactDimension = 256;
// The largest gradient coordinate that is accepted where nothing else is known, in max_update.
inline constexpr double kUsualGradient = 64;

// One round that the script wants.
struct RoundPlan {
  v1::RoundRecord record;        // kind, phase, numbers, rates: what is known beforehand
  v1::Task task;                 // all but the sums' units, which depend on the cohort
  uint32_t sample = 0;           // clients to draw; 0: all
  uint64_t rounds_in_phase = 0;  // 0: not known
  // Its number within the phase, where that is not simply the next one: a measure
  // taken while training has the number of the training round before it.
  std::optional<uint64_t> round_in_phase;
  ModelPtr base;  // the model to start from
  // The cohort are those whose reports counted so many rounds ago; 0: it is drawn. The engine
  // finds them: `cohort`, by index.
  uint64_t cohort_of_rounds_ago = 0;
  std::vector<uint32_t> cohort;
  // Rounds of the run before this one that are aside (records/who_pays.h): its cohort is drawn as
  // if they had not been. Set by the script.
  uint64_t rounds_aside = 0;
  // Batches go on from those that a round so many rounds ago has begun, after `batch_step` of them.
  std::optional<uint64_t> batches_of_rounds_ago;
  uint64_t batch_step = 0;
  bool without_loss = false;  // the loss at the start is not worth its cost
  // Clients may come and go before this round: nothing that the phase holds is about those who
  // are present now.
  bool may_begin_epoch = false;
  // Further files in its shape that the task needs, by name. What they are made of is in the
  // script's state.
  std::map<std::string, ModelPtr> others;
  // Clients keep a state between rounds, which counts from this round on, and are told whose
  // they use: that of the last round that their report counted in. 0: they keep none.
  uint64_t states_since = 0;
  // Clients, by index, that further attempts at the round do without. Set by the engine.
  std::set<uint32_t> set_aside;
};

// What phases leave for one another, and what never changes.
struct RunContext {
  v1::RunConfig config;
  ModelLayout layout;
  uint64_t clients = 0;   // present in this epoch
  uint64_t examples = 0;  // their training examples together
  ModelPtr initial;
  ModelPtr current;
  ModelPtr optimum;            // null before its phase
  ModelPtr baseline;           // of config.baseline; null: none
  Workers* workers = nullptr;  // share long loops, if there are any
  std::optional<v1::ConstantsResult> constants;
  // F(w*) and its standard error over clients, once measured.
  std::optional<double> optimum_loss;
  double optimum_loss_standard_error = 0;
  // What rounding can have changed |grad F(w*)| by.
  double optimum_resolution = 0;
  // How large the clients' values are, once measured.
  std::optional<v1::Scale> scale;

  const ModelPtr& At(v1::Probe::Point point) const;
  // The configured step size or, if it is 0 (auto_step_size), min(1/L, 1/(mu H)). H is `steps`, the
  // phase's own largest; in a run with a verdict it is the largest of all phases that leave
  // it to us, so that what the verdict judges is what training uses.
  double StepSize(double configured, uint32_t steps) const;
};

class PhaseScript {
 public:
  virtual ~PhaseScript() = default;
  // The next round, given how many are committed in this phase. A pure function
  // of the state.
  virtual RoundPlan Next(const RunContext& run, uint64_t rounds_done) const = 0;
  // Must the round be taken once more before its sums may count, because of what they have
  // shown? Then Next asks for something else. `largest_norm`: see Aggregator.
  virtual bool MustRepeat(const RoundPlan&, const Tally&, double /*largest_norm*/) { return false; }
  // The sums of that round; the measures are in plan.record already. True when
  // the phase is over.
  virtual absl::StatusOr<bool> Absorb(RoundPlan& plan, const Tally& tally, uint64_t rounds_done,
                                      RunContext& run) = 0;
  // How many of the phase's first `rounds_done` rounds are aside (records/who_pays.h): the cohorts
  // and batches of later ones are drawn as if they had not been. The plan's own
  // batches_of_rounds_ago does not count them either.
  virtual uint64_t RoundsAsideSoFar(uint64_t /*rounds_done*/) const { return 0; }
  // Do clients keep a state between its training rounds? It begins anew with the phase.
  virtual bool keeps_state() const { return false; }
  // State between two rounds, as numbers, and back.
  virtual std::vector<double> Save() const { return {}; }
  virtual absl::Status Restore(const std::vector<double>& state, const RunContext& run);
};

// The most local steps that the rule can take; 0 with epochs.
uint32_t MostSteps(const v1::LocalRule& rule);

// The phase at the start of its work. May change run.current (train.start).
std::unique_ptr<PhaseScript> MakePhase(const v1::Phase& phase, RunContext& run);

// The weighted mean over clients of a vector that the task asks for.
Vector<double> MeanOf(const v1::Task& task, const Tally& tally, absl::string_view name);

// Plain averaging: the model less the average displacement. An error if it is not finite;
// `what` diverged, and the remedy is to lower `field`.
absl::StatusOr<ModelPtr> Average(const v1::Task& task, const Tally& tally, const Model& model,
                                 const RunContext& run, absl::string_view what,
                                 absl::string_view field);

// Rounds that more than one phase asks for: a probe, and an evaluation, of the
// model at a point.
RoundPlan PlanProbe(const v1::Probe& probe, const RunContext& run);
RoundPlan PlanEvaluation(v1::Probe::Point point, const RunContext& run);

// One maker per kind; each in a file of its own.
std::unique_ptr<PhaseScript> MakeOptimumPhase(const v1::Optimum& config, const RunContext& run);
std::unique_ptr<PhaseScript> MakeProbePhase(const v1::Probe& config);
std::unique_ptr<PhaseScript> MakeTrainPhase(const v1::Train& config, RunContext& run);
std::unique_ptr<PhaseScript> MakeEvaluatePhase(const v1::Evaluate& config);
std::unique_ptr<PhaseScript> MakeConstantsPhase(const v1::Constants& config, const RunContext& run);
std::unique_ptr<PhaseScript> MakeFixedPointPhase(const v1::FixedPoint& config,
                                                 const RunContext& run);
std::unique_ptr<PhaseScript> MakeReleasePhase(const v1::ReleaseTest& config, const RunContext& run);
// The run's last phase, and after it a round for the loss of the final model.
std::unique_ptr<PhaseScript> MakeFinalLossPhase(std::unique_ptr<PhaseScript> last,
                                                const v1::Phase& config);

}  // namespace leeway

#endif  // LEEWAY_SERVER_PHASE_H_
