#include "server/script.h"

#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/sums.h"
#include "records/evaluate_config.h"
#include "records/final_loss.h"
#include "records/who_pays.h"
#include "server/measures.h"
#include "server/scale.h"

namespace leeway {

Script::Script(v1::RunConfig config, ModelLayout layout, uint64_t clients, uint64_t examples,
               ModelPtr initial) {
  run_.config = std::move(config);
  run_.layout = std::move(layout);
  run_.clients = clients;
  run_.examples = examples > 0 ? examples : clients;
  run_.initial = initial ? std::move(initial)
                         : MakeModel(run_.layout, InitialModel(run_.layout, run_.config.seed()));
  run_.current = run_.initial;
  EnterPhase();
}

absl::StatusOr<Script> Script::Resume(
    v1::RunConfig config, ModelLayout layout, uint64_t clients, const v1::ScriptState& state,
    const std::function<absl::StatusOr<std::string>(const std::string&)>& load, uint64_t examples) {
  Script script(std::move(config), std::move(layout), clients, examples);
  RunContext& run = script.run_;
  const auto model = [&](const std::string& sha256) -> absl::StatusOr<ModelPtr> {
    if (sha256.empty()) return ModelPtr();
    if (run.initial->sha256 == sha256) return run.initial;
    LEEWAY_ASSIGN_OR_RETURN(const std::string file, load(sha256));
    return ParseModel(run.layout, file);
  };
  LEEWAY_ASSIGN_OR_RETURN(run.initial, model(state.initial_sha256()));
  LEEWAY_ASSIGN_OR_RETURN(run.optimum, model(state.optimum_sha256()));
  LEEWAY_ASSIGN_OR_RETURN(run.current, model(state.current_sha256()));
  if (state.has_constants()) run.constants = state.constants();
  if (state.has_scale()) run.scale = state.scale();
  if (state.optimum_loss_known()) {
    run.optimum_loss = state.optimum_loss();
    run.optimum_loss_standard_error = state.optimum_loss_standard_error();
    run.optimum_resolution = state.optimum_resolution();
  }
  script.index_ = state.phase();
  script.round_ = state.round();
  script.EnterPhase();
  // Entering a phase may choose its starting model; the saved one is further on.
  LEEWAY_ASSIGN_OR_RETURN(run.current, model(state.current_sha256()));
  script.round_in_phase_ = state.round_in_phase();
  const std::vector<double> numbers(state.optimizer().begin(), state.optimizer().end());
  if (script.phase_ && state.round_in_phase() > 0) {
    LEEWAY_RETURN_IF_ERROR(script.phase_->Restore(numbers, run));
  }
  return script;
}

absl::Status Script::SetBaseline(ModelPtr baseline) {
  LEEWAY_RETURN_IF_ERROR(CheckFineTuneTensors(run_.config, run_.layout));
  if (!baseline) return absl::OkStatus();
  const absl::Status fits = ParseModel(run_.layout, baseline->file.view()).status();
  if (!fits.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("baseline: ", run_.config.baseline(),
                     " is not a model of this run's shape: ", fits.message()));
  }
  run_.baseline = std::move(baseline);
  return absl::OkStatus();
}

v1::ScriptState Script::Save() const {
  v1::ScriptState state;
  state.set_phase(index_);
  state.set_round_in_phase(round_in_phase_);
  state.set_round(round_);
  state.set_initial_sha256(run_.initial->sha256);
  state.set_current_sha256(run_.current->sha256);
  if (run_.optimum) state.set_optimum_sha256(run_.optimum->sha256);
  if (run_.constants) *state.mutable_constants() = *run_.constants;
  if (run_.scale) *state.mutable_scale() = *run_.scale;
  if (run_.optimum_loss) {
    state.set_optimum_loss_known(true);
    state.set_optimum_loss(*run_.optimum_loss);
    state.set_optimum_loss_standard_error(run_.optimum_loss_standard_error);
    state.set_optimum_resolution(run_.optimum_resolution);
  }
  if (phase_ && round_in_phase_ > 0) {
    const std::vector<double> numbers = phase_->Save();
    state.mutable_optimizer()->Add(numbers.begin(), numbers.end());
  }
  return state;
}

void Script::EnterPhase() {
  round_in_phase_ = 0;
  phase_.reset();
  const auto phases = static_cast<uint32_t>(run_.config.phases_size());
  if (index_ >= phases) return;
  const v1::Phase& config = run_.config.phases(static_cast<int>(index_));
  phase_ = MakePhase(config, run_);
  // At the end of the run, so that no other round is numbered, and its cohort drawn, otherwise.
  if (index_ + 1 == phases && EndsWithLossRound(run_.config)) {
    phase_ = MakeFinalLossPhase(std::move(phase_), config);
  }
}

uint64_t Script::RoundsAsideSoFar() const {
  uint64_t rounds = phase_ ? phase_->RoundsAsideSoFar(round_in_phase_) : 0;
  for (uint32_t i = 0; i < index_; ++i) {
    rounds += RoundsAside(run_.config.phases(static_cast<int>(i)));
  }
  return rounds;
}

RoundPlan Script::Next() const {
  RoundPlan plan = NeedsScale(run_) ? PlanScale(run_) : phase_->Next(run_, round_in_phase_);
  v1::RoundRecord& record = plan.record;
  record.set_round(round_ + 1);
  if (record.kind() == v1::TRAIN_ROUND) plan.states_since = states_since();
  record.set_phase(index_);
  record.set_round_in_phase(plan.round_in_phase.value_or(round_in_phase_ + 1));
  record.set_base_sha256(plan.base->sha256);
  record.set_step_size(plan.task.rule().step_size());
  record.set_local_steps(plan.task.rule().steps());
  record.set_batch_size(plan.task.rule().batch_size());
  plan.rounds_aside = RoundsAsideSoFar();
  if (plan.batches_of_rounds_ago || plan.rounds_aside > 0) {
    plan.task.set_batch_round(record.round() - plan.rounds_aside -
                              plan.batches_of_rounds_ago.value_or(0));
    plan.task.set_batch_step(plan.batch_step);
  }
  // Test results are pooled over examples, so each client's sums count once.
  const bool tests = Asks(plan.task, kTestExamples);
  plan.task.set_weighting(tests ? v1::UNIFORM : run_.config.weighting());
  // Probes stay exact; what is trained on, and the drift that comes with it, need not be.
  if (record.kind() == v1::TRAIN_ROUND) plan.task.set_encoding(run_.config.encoding());
  if (plan.task.groups() == 0) plan.task.set_groups(1);
  // Whose own training loop it may be: agreement is then all that can be measured.
  if (run_.config.model().has_file() && Asks(plan.task, kDisplacement)) {
    Ask(kDisplacementSquared, plan.task);
  }
  AskForMeasures(plan.task, !plan.without_loss);
  for (v1::Sum& sum : *plan.task.mutable_sums()) {
    if (sum.shape() != v1::NUMBER && sum.largest() == 0) {
      sum.set_largest(LargestDisplacement(run_, plan.task.rule()));
    }
  }
  return plan;
}

absl::Status Script::Absorb(RoundPlan& plan, const Tally& tally, Workers* workers) {
  run_.workers = workers;
  FillMeasures(plan.task, tally, {run_.clients, run_.examples},
               run_.constants ? &*run_.constants : nullptr, plan.record);
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  if (run_.config.model().has_linear_regression()) {  // no answer is right or wrong
    plan.record.set_accuracy(kNaN);
    plan.record.set_central_accuracy(kNaN);
  }
  plan.record.set_distance_squared(kNaN);
  const bool on_path =
      plan.record.kind() == v1::TRAIN_ROUND || plan.record.kind() == v1::FINAL_LOSS_ROUND;
  if (run_.optimum && on_path) {
    plan.record.set_distance_squared(
        (ValuesOf(run_.layout, *plan.base) - ValuesOf(run_.layout, *run_.optimum)).squaredNorm());
  }
  ++round_;
  if (plan.record.kind() == v1::SCALE_ROUND) {
    run_.scale = ReadScale(plan, tally);
    plan.record.set_model_sha256(plan.base->sha256);
    return absl::OkStatus();
  }
  ++round_in_phase_;
  LEEWAY_ASSIGN_OR_RETURN(const bool over, phase_->Absorb(plan, tally, round_in_phase_, run_));
  plan.record.set_model_sha256(plan.record.kind() == v1::TRAIN_ROUND ? run_.current->sha256
                                                                     : plan.base->sha256);
  if (over) {
    ++index_;
    EnterPhase();
  }
  return absl::OkStatus();
}

}  // namespace leeway
