// A run from its start to its end, with the round loop. How clients are waited for is in
// engine_epochs.cc, what the service's threads call in engine_calls.cc.
#include "server/engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/encoding.h"
#include "common/failpoint.h"
#include "common/plural.h"
#include "common/status.h"
#include "common/sums.h"
#include "common/wire.h"
#include "server/draw.h"
#include "server/steady_time.h"

namespace leeway {
namespace {

// Longer than a client pauses between attempts to come back.
constexpr absl::Duration kReturnTime = absl::Seconds(5);

// Text has a target for every token.
uint64_t TargetsPerExample(const v1::Model& model, const v1::DataSchema& schema) {
  uint64_t targets = 1;
  for (const uint64_t side : schema.feature_shape()) targets *= model.has_lstm() ? side : 1;
  return targets;
}

v1::ModelRef RefTo(const Model& model) {
  v1::ModelRef ref;
  ref.set_sha256(model.sha256);
  ref.set_size(model.file.size());
  if (model.file.size() <= kInlineModelBytes) ref.set_inline_(std::string(model.file.view()));
  return ref;
}

v1::Order MakeOrder(const Journal& journal, const RoundPlan& plan, const RoundSpec& spec,
                    v1::Task task) {
  v1::Order order;
  order.set_run_id(journal.run_id());
  order.set_committed_round(journal.committed());
  order.set_round(spec.round);
  order.set_attempt(spec.attempt);
  *order.mutable_task() = std::move(task);
  *order.mutable_model() = RefTo(*plan.base);
  for (const auto& [name, model] : plan.others) {
    v1::NamedModel& other = *order.add_others();
    other.set_name(name);
    *other.mutable_model() = RefTo(*model);
  }
  return order;
}

std::vector<ModelPtr> ModelsOf(const RoundPlan& plan) {
  std::vector<ModelPtr> models = {plan.base};
  for (const auto& [name, model] : plan.others) models.push_back(model);
  return models;
}

}  // namespace

Engine::Engine(Options options)
    : options_(std::move(options)),
      sessions_(options_.meter),
      refusals_(options_.meter),
      summation_(options_.meter),
      membership_(options_.config, options_.epochs),
      round_(std::make_unique<Round>()),
      attempts_(options_.config),
      progress_(options_.config) {}

// The last session's Leave may still be on its way out.
Engine::~Engine() { MutexLock lock(&mu_); }

absl::StatusOr<std::unique_ptr<Engine>> Engine::Open(Options options) {
  std::unique_ptr<Engine> engine(new Engine(std::move(options)));
  const Options& given = engine->options_;
  LEEWAY_ASSIGN_OR_RETURN(engine->journal_, Journal::Open({given.config, given.state_directory,
                                                           given.log, given.meter, given.chain_key},
                                                          &engine->observers_));
  LEEWAY_RETURN_IF_ERROR(engine->Resume());
  return engine;
}

absl::Status Engine::Resume() {
  LEEWAY_ASSIGN_OR_RETURN(const std::optional<Journal::SavedRun> saved, journal_->Load());
  if (!saved) return absl::OkStatus();
  MutexLock lock(&mu_);
  LEEWAY_RETURN_IF_ERROR(membership_.Restore(*saved, SteadyNow()));
  Roster& roster = membership_.roster();
  LEEWAY_ASSIGN_OR_RETURN(
      script_,
      Script::Resume(
          options_.config, membership_.data()->layout, roster.population(), saved->script,
          [this](const std::string& sha) { return journal_->LoadModel(sha); }, roster.examples()));
  LEEWAY_RETURN_IF_ERROR(script_->SetBaseline(options_.baseline));
  if (const uint64_t since = script_->states_since(); since > 0) {
    LEEWAY_ASSIGN_OR_RETURN(const auto rounds, journal_->AcceptedSince(since));
    for (const auto& [round, accepted] : rounds) roster.CountIn(round, accepted);
  }
  progress_.Restore(*saved, roster.expected(), journal_->committed());
  return absl::OkStatus();
}

absl::Status Engine::Run() {
  absl::Status outcome = GatherClients();
  if (outcome.ok()) outcome = RunRounds();
  if (absl::Status flushed = journal_->Flush(); !flushed.ok()) outcome = flushed;
  return Finish(outcome);
}

absl::Status Engine::RunRounds() {
  while (!script_->done()) {
    LEEWAY_ASSIGN_OR_RETURN(RoundPlan plan, PlanRound());
    LEEWAY_RETURN_IF_ERROR(OpenRound(plan));
    LEEWAY_RETURN_IF_ERROR(GatherReports());
    LEEWAY_ASSIGN_OR_RETURN(std::optional<Round::Result> result, CloseRound());
    if (!result) continue;  // too few reports: once more, with another cohort
    if (MustRepeat(plan, *result)) continue;
    LEEWAY_RETURN_IF_ERROR(script_->Absorb(plan, result->tally, &summation_.workers()));
    LEEWAY_RETURN_IF_ERROR(CommitRound(std::move(plan), *std::move(result)));
  }
  return absl::OkStatus();
}

absl::StatusOr<RoundSpec> Engine::DrawCohort(const RoundPlan& plan, v1::Task& task,
                                             PlainAggregator::Spec& sums) {
  absl::StatusOr<RoundSpec> drawn =
      DrawRound(options_.config, membership_.roster(), plan, attempts_.drawn_by(), SteadyNow());
  if (!drawn.ok()) {
    const std::string& last = attempts_.last_quarantine();
    return absl::FailedPreconditionError(
        absl::StrCat(drawn.status().message(), last.empty() ? "" : ". Last refusal: ", last));
  }
  drawn->attempt = attempts_.number();
  const Membership::Data& data = *membership_.data();
  task = CompleteTask(options_.config, membership_.roster(), plan, *drawn);
  sums.sums = TaskSums(task, data.layout.size());
  sums.encoding = EncodingFor(task.encoding(), data.layout.float64);
  sums.limits = {task.max_norm(), TargetsPerExample(options_.config.model(), data.schema)};
  sums.base_sha256 = plan.base->sha256;
  return drawn;
}

absl::Status Engine::OpenRound(const RoundPlan& plan) {
  RoundSpec spec;
  v1::Task task;
  PlainAggregator::Spec sums;
  {
    MutexLock lock(&mu_);
    LEEWAY_ASSIGN_OR_RETURN(spec, DrawCohort(plan, task, sums));
  }
  const v1::Order order = MakeOrder(*journal_, plan, spec, std::move(task));
  std::unique_ptr<Aggregator> aggregator = summation_.Begin(std::move(sums));
  Failpoint("round.before_open");
  std::vector<Assignment> work;
  {
    MutexLock lock(&mu_);
    if (std::optional<LogLine> line = progress_.OpenRound(plan, spec)) {
      journal_->LogOnly(*std::move(line));
    }
    round_ = std::make_unique<Round>(std::move(spec), &membership_.roster(), std::move(aggregator));
    sessions_.SetRound(order, ModelsOf(plan));
    work = round_->Work();
  }
  // Without the lock: reports to the first orders need not wait for the last ones.
  sessions_.SendOrders(work);
  sessions_.WakeResting();
  Failpoint("round.after_open");
  return absl::OkStatus();
}

// Returns when the round is decided. Meanwhile the journal does what it has put off.
absl::Status Engine::GatherReports() {
  while (true) {
    LEEWAY_ASSIGN_OR_RETURN(const absl::Time catch_up, journal_->CatchUp(SteadyNow()));
    std::vector<Assignment> work;
    {
      MutexLock lock(&mu_);
      const absl::Time now = SteadyNow();
      if (round_->StateAt(now) != Round::State::kCollecting) return absl::OkStatus();
      if (stopping_) return absl::CancelledError("stopped");
      work = ReplaceAbsent(now);
      if (std::optional<LogLine> line = progress_.NoteAbsent(*round_, membership_, now)) {
        journal_->LogOnly(*std::move(line));
      }
      // In steps, because the clock that wakes us may be set back meanwhile.
      absl::Duration wait = std::min(round_->NextChange() - now, absl::Seconds(1));
      // Past the deadline only a report that is being added keeps the round open; its
      // end wakes us.
      if (wait <= absl::ZeroDuration()) wait = absl::Seconds(1);
      wait = std::min(wait, catch_up - now);
      if (work.empty() && !journal_->has_news())
        changed_.WaitWithDeadline(&mu_, absl::Now() + wait);
    }
    if (work.empty()) continue;
    sessions_.SendOrders(work);
    sessions_.WakeResting();
  }
}

std::vector<Assignment> Engine::ReplaceAbsent(absl::Time now) {
  const uint32_t before = round_->replaced();
  std::vector<Assignment> work = round_->Replace(now);
  if (const uint32_t replaced = round_->replaced() - before; replaced > 0) {
    journal_->AddEvent(
        v1::Event::REPLACED, "",
        absl::StrCat("round ", round_->spec().round, ": ", Counted(replaced, "client"),
                     " whose process is gone gave their place to others"));
  }
  return work;
}

absl::StatusOr<std::optional<Round::Result>> Engine::CloseRound() {
  MutexLock lock(&mu_);
  const bool complete = round_->StateAt(SteadyNow()) == Round::State::kComplete;
  Round::Result result = round_->Close();
  Roster& roster = membership_.roster();
  for (Attempts::Quarantined& out : attempts_.Judge(*round_, roster)) {
    journal_->AddEvent(v1::Event::QUARANTINED, std::move(out.client), std::move(out.why));
  }
  for (const ClientIndex client : result.accepted) roster.CountAccepted(client);
  if (complete) return result;
  summation_.End(std::move(result.tally));
  if (stopping_) return absl::CancelledError("stopped");
  LEEWAY_RETURN_IF_ERROR(TooFewReports(result));
  return std::nullopt;
}

absl::Status Engine::TooFewReports(const Round::Result& result) {
  const v1::Cohort& rule = options_.config.cohort();
  const uint64_t round = round_->spec().round;
  const std::string missing =
      result.missing.empty() ? ""
                             : absl::StrCat("; missing: ", membership_.NamesOf(result.missing));
  journal_->AddEvent(
      v1::Event::RETRY, "",
      absl::StrCat("round ", round, " got ", result.reports, " of ", result.sampled, " reports",
                   missing, "; ",
                   attempts_.has_next() ? "trying again" : "this was the last attempt"));
  if (attempts_.has_next()) return absl::OkStatus();
  const std::string& failure = attempts_.last_failure();
  return absl::DeadlineExceededError(
      absl::StrCat("round ", round, " did not get enough reports in ", rule.attempts(),
                   " attempts of at most ", rule.deadline_seconds(), " s", missing, ". ",
                   failure.empty() ? "" : absl::StrCat("Last refusal: ", failure, ". "),
                   "Check the clients' logs, or change cohort.minimum_reports, "
                   "cohort.deadline_seconds or cohort.attempts; started again, the server goes on "
                   "with this round"));
}

bool Engine::MustRepeat(const RoundPlan& plan, Round::Result& result) {
  MutexLock lock(&mu_);
  if (!attempts_.may_repeat() || !script_->MustRepeat(plan, result.tally, result.largest_norm)) {
    return false;
  }
  attempts_.Repeat();
  AddRepeat(plan);
  summation_.End(std::move(result.tally));
  return true;
}

absl::Status Engine::CommitRound(RoundPlan plan, Round::Result result) {
  AddClipped(plan.record);
  RoundCommit commit;
  const uint64_t round = plan.record.round();
  commit.record = std::move(plan.record);
  commit.record.set_sampled(result.sampled);
  commit.record.set_reports(result.reports);
  commit.record.set_replaced(result.replaced);
  commit.accepted = result.accepted;
  commit.script = script_->Save();
  if (commit.record.kind() == v1::TRAIN_ROUND) commit.models.push_back(script_->current());
  // An optimum phase that has just ended leaves its model.
  if (commit.record.kind() == v1::OPTIMUM_ROUND && script_->optimum() &&
      commit.script.round_in_phase() == 0) {
    commit.models.push_back(script_->optimum());
    commit.names.push_back({"optimum", script_->optimum()->sha256});
  }
  {
    MutexLock lock(&mu_);
    const Roster& roster = membership_.roster();
    const absl::Time began = attempts_.began();
    commit.record.set_attempts(attempts_.number());
    commit.record.set_opened(absl::ToDoubleSeconds(began - absl::UnixEpoch()));
    commit.record.set_seconds(absl::ToDoubleSeconds(SteadyNow() - began));
    commit.record.set_idle_share(progress_.CloseRound());
    commit.record.set_epoch(roster.epoch());
    commit.record.set_population(roster.population());
    for (const Standing& standing : roster.standings()) {
      v1::ClientStanding& one = *commit.standings.add_clients();
      one.set_client(standing.client);
      one.set_refused(standing.refused);
      one.set_quarantined(standing.quarantined);
    }
  }
  LEEWAY_RETURN_IF_ERROR(journal_->Commit(std::move(commit)));
  summation_.End(std::move(result.tally));
  MutexLock lock(&mu_);
  attempts_.EndRound();
  if (plan.states_since > 0) membership_.roster().CountIn(round, result.accepted);
  return absl::OkStatus();
}

void Engine::AddRepeat(const RoundPlan& plan) {
  journal_->AddEvent(
      v1::Event::RETRY, "",
      absl::StrCat("round ", plan.record.round(), ": ",
                   plan.task.max_norm() > 0 ? "half of the displacements are" : "one is",
                   " far longer than the median of ",
                   plan.task.max_norm() > 0 ? "the round before" : "all",
                   " (limits.median_multiple)",
                   "; none counts, and the round is taken again with the limit ",
                   script_->Next().task.max_norm(), " (0: none)"));
}

void Engine::AddClipped(const v1::RoundRecord& record) {
  if (record.clipped() == 0) return;
  journal_->AddEvent(
      v1::Event::CLIPPED, "",
      absl::StrCat("round ", record.round(), ": ", record.clipped(),
                   " client(s) scaled their displacement down to the limit ", record.norm_limit(),
                   ", which follows from the median of the round before; if they are honest, raise "
                   "limits.median_multiple"));
}

absl::Status Engine::Finish(const absl::Status& outcome) {
  {
    MutexLock lock(&mu_);
    journal_->LogOnly(progress_.EndText(outcome, journal_->committed(), options_.state_directory));
  }
  if (absl::IsCancelled(outcome) || !journal_->disk().ok()) {
    {
      MutexLock lock(&mu_);
      stopping_ = true;
      sessions_.Close(absl::UnavailableError("the server is stopping; it will resume this run"));
    }
    sessions_.WakeResting();
    return outcome;
  }
  const v1::RunState state = outcome.ok() ? v1::DONE : v1::FAILED;
  absl::Status stored;
  if (script_) stored = journal_->Finish(state, outcome.message(), script_->current());
  {
    MutexLock lock(&mu_);
    progress_.SetState(state, outcome.message());
    v1::Order last;
    last.set_run_id(journal_->run_id());
    last.set_committed_round(journal_->committed());
    last.set_finished(true);
    last.set_failure(std::string(outcome.message()));
    sessions_.Finish(last, membership_.roster().GoneAfter(SteadyNow() - kReturnTime));
  }
  observers_.Notify();
  sessions_.WakeResting();
  sessions_.AwaitAway(kReturnTime);
  MutexLock lock(&mu_);
  stopping_ = true;
  return outcome.ok() ? stored : outcome;
}

void Engine::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  sessions_.StopWaiting();
}

}  // namespace leeway
