// A run from its start to its end, with the round loop. Who takes part is in engine_epochs.cc,
// what is told of a run in engine_events.cc, what the service's threads call in engine_calls.cc.
#include "server/engine.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/encoding.h"
#include "common/failpoint.h"
#include "common/plural.h"
#include "common/status.h"
#include "common/sums.h"
#include "common/wire.h"
#include "records/epochs.h"
#include "server/draw.h"
#include "server/plain_aggregator.h"
#include "server/steady_time.h"

namespace leeway {
namespace {

// Of one round, because of what its sums have shown: without its limit, and with another.
constexpr uint32_t kMostRepeats = 2;

constexpr unsigned kMostWorkers = 8;  // more are not faster than memory

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
      workers_(std::clamp(std::thread::hardware_concurrency(), 1u, kMostWorkers)),
      roster_(options_.config.cohort().clients(), options_.config.cohort().closed()),
      round_(std::make_unique<Round>()) {
  progress_.set_state(v1::GATHERING);
  progress_.set_expected(roster_.expected());
}

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
  std::vector<Enrolment> clients;
  clients.reserve(saved->roster.size());
  for (const StoredClient& c : saved->roster) {
    clients.push_back({c.id, c.examples, c.test_examples, c.digest});
  }
  Attendance attendance(saved->roster);
  for (const v1::Epoch& epoch : saved->epochs) LEEWAY_RETURN_IF_ERROR(attendance.Begin(epoch));
  std::vector<Standing> standings;
  for (const v1::ClientStanding& one : saved->standings.clients()) {
    standings.push_back({one.client(), one.refused(), one.quarantined()});
  }
  LEEWAY_ASSIGN_OR_RETURN(ModelLayout layout, LayoutOf(options_.config.model(), saved->schema));
  MutexLock lock(&mu_);
  roster_ = Roster(std::move(clients), SteadyNow(), attendance.epoch().number(), attendance.Away(),
                   options_.config.cohort().closed());
  roster_.Restore(standings);
  data_ = Data{saved->schema, std::move(layout)};
  LEEWAY_ASSIGN_OR_RETURN(
      script_,
      Script::Resume(
          options_.config, data_->layout, roster_.population(), saved->script,
          [this](const std::string& sha) { return journal_->LoadModel(sha); }, roster_.examples()));
  LEEWAY_RETURN_IF_ERROR(script_->SetBaseline(options_.baseline));
  if (const uint64_t since = script_->states_since(); since > 0) {
    LEEWAY_ASSIGN_OR_RETURN(const auto rounds, journal_->AcceptedSince(since));
    for (const auto& [round, accepted] : rounds) roster_.CountIn(round, accepted);
  }
  progress_.set_state(saved->state);
  progress_.set_message(saved->message);
  progress_.set_expected(roster_.expected());
  progress_.set_round(journal_->committed());
  return absl::OkStatus();
}

absl::Status Engine::Run() {
  absl::Status outcome = GatherClients();
  if (outcome.ok()) outcome = RunRounds();
  if (absl::Status flushed = journal_->Flush(); !flushed.ok()) outcome = flushed;
  return Finish(outcome);
}

absl::Status Engine::RunRounds() {
  absl::Time opened;
  uint32_t attempt = 1;
  while (!script_->done()) {
    LEEWAY_ASSIGN_OR_RETURN(RoundPlan plan, PlanRound());
    plan.set_aside = set_aside_;
    if (attempt == 1) opened = SteadyNow();
    LEEWAY_RETURN_IF_ERROR(OpenRound(plan, attempt));
    LEEWAY_RETURN_IF_ERROR(GatherReports());
    LEEWAY_ASSIGN_OR_RETURN(std::optional<Round::Result> result, CloseRound());
    if (!result) {  // too few reports: once more, with another cohort
      ++attempt;
      continue;
    }
    if (repeated_ < kMostRepeats &&
        script_->MustRepeat(plan, result->tally, result->largest_norm)) {
      AddRepeat(plan);
      memory_ = std::move(result->tally);
      ++attempt;
      ++repeated_;
      continue;
    }
    LEEWAY_RETURN_IF_ERROR(script_->Absorb(plan, result->tally, &workers_));
    AddClipped(plan.record);
    plan.record.set_attempts(attempt);
    plan.record.set_opened(absl::ToDoubleSeconds(opened - absl::UnixEpoch()));
    plan.record.set_seconds(absl::ToDoubleSeconds(SteadyNow() - opened));
    LEEWAY_RETURN_IF_ERROR(CommitRound(std::move(plan), *result));
    memory_ = std::move(result->tally);
    set_aside_.clear();
    repeated_ = 0;
    attempt = 1;
  }
  return absl::OkStatus();
}

absl::Status Engine::OpenRound(const RoundPlan& plan, uint32_t attempt) {
  RoundSpec spec;
  PlainAggregator::Spec sums;
  {
    MutexLock lock(&mu_);
    absl::StatusOr<RoundSpec> drawn =
        DrawRound(options_.config, roster_, plan, attempt - repeated_, SteadyNow());
    if (!drawn.ok()) {
      const std::string refusal = journal_->last_refusal();
      return absl::FailedPreconditionError(absl::StrCat(
          drawn.status().message(), refusal.empty() ? "" : ". Last refusal: ", refusal));
    }
    spec = *std::move(drawn);
    spec.attempt = attempt;  // the cohort of a round that is repeated stays the same
    sums.task = CompleteTask(options_.config, roster_, plan, spec);
    sums.sums = TaskSums(sums.task, data_->layout.size());
    sums.encoding = EncodingFor(sums.task.encoding(), data_->layout.float64);
    sums.limits = {sums.task.max_norm(), TargetsPerExample(options_.config.model(), data_->schema)};
  }
  sums.base_sha256 = plan.base->sha256;
  const v1::Order order = MakeOrder(*journal_, plan, spec, sums.task);
  auto aggregator = std::make_unique<PlainAggregator>(std::move(sums), std::move(memory_),
                                                      &workers_, options_.meter);
  Failpoint("round.before_open");
  std::vector<Assignment> work;
  {
    MutexLock lock(&mu_);
    ShowRound(plan, spec);
    absent_logged_ = false;
    idle_time_ = IdleTime();
    failures_.clear();
    round_ = std::make_unique<Round>(std::move(spec), &roster_, std::move(aggregator));
    sessions_.SetRound(order, ModelsOf(plan));
    work = round_->Work();
  }
  // Without the lock: reports to the first orders need not wait for the last ones.
  sessions_.SendOrders(work);
  sessions_.WakeResting();
  Failpoint("round.after_open");
  return absl::OkStatus();
}

void Engine::ShowRound(const RoundPlan& plan, const RoundSpec& spec) {
  if (!phase_logged_ || progress_.phase() != plan.record.phase()) {
    phase_logged_ = true;
    LogPhase(plan.record.phase(), spec.round);
  }
  progress_.set_phase(plan.record.phase());
  progress_.set_round(spec.round);
  progress_.set_round_in_phase(plan.record.round_in_phase());
  progress_.set_rounds_in_phase(plan.rounds_in_phase);
  progress_.set_sampled(static_cast<uint32_t>(spec.cohort.size()) - spec.evaluators);
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
      LogAbsent(now);
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
  const v1::Cohort& rule = options_.config.cohort();
  MutexLock lock(&mu_);
  const bool complete = round_->StateAt(SteadyNow()) == Round::State::kComplete;
  Round::Result result = round_->Close();
  JudgeFailures();
  for (const ClientIndex client : result.accepted) roster_.CountAccepted(client);
  if (complete) return result;
  memory_ = std::move(result.tally);
  if (stopping_) return absl::CancelledError("stopped");
  const RoundSpec& spec = round_->spec();
  const bool again = spec.attempt - repeated_ < rule.attempts();
  journal_->AddEvent(
      v1::Event::RETRY, "",
      absl::StrCat("round ", spec.round, " got ", result.reports, " of ", result.sampled,
                   " reports", result.missing.empty() ? "" : "; missing: ", NamesOf(result.missing),
                   "; ", again ? "trying again" : "this was the last attempt"));
  if (again) return std::nullopt;
  const std::string refusal = journal_->last_refusal();
  return absl::DeadlineExceededError(
      absl::StrCat("round ", spec.round, " did not get enough reports in ", rule.attempts(),
                   " attempts of at most ", rule.deadline_seconds(), " s",
                   result.missing.empty() ? "" : "; missing: ", NamesOf(result.missing), ". ",
                   refusal.empty() ? "" : absl::StrCat("Last refusal: ", refusal, ". "),
                   "Check the clients' logs, or change cohort.minimum_reports, "
                   "cohort.deadline_seconds or cohort.attempts; started again, the server goes on "
                   "with this round"));
}

absl::Status Engine::CommitRound(RoundPlan plan, const Round::Result& result) {
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
    commit.record.set_idle_share(idle_time_.share());
    run_idle_time_.Add(idle_time_);
    commit.record.set_epoch(roster_.epoch());
    commit.record.set_population(roster_.population());
    for (const Standing& standing : roster_.standings()) {
      v1::ClientStanding& one = *commit.standings.add_clients();
      one.set_client(standing.client);
      one.set_refused(standing.refused);
      one.set_quarantined(standing.quarantined);
    }
  }
  LEEWAY_RETURN_IF_ERROR(journal_->Commit(std::move(commit)));
  if (plan.states_since > 0) {
    MutexLock lock(&mu_);
    roster_.CountIn(round, result.accepted);
  }
  return absl::OkStatus();
}

absl::Status Engine::Finish(const absl::Status& outcome) {
  LogEnd(outcome);
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
    progress_.set_state(state);
    progress_.set_message(std::string(outcome.message()));
    v1::Order last;
    last.set_run_id(journal_->run_id());
    last.set_committed_round(journal_->committed());
    last.set_finished(true);
    last.set_failure(std::string(outcome.message()));
    sessions_.Finish(last, roster_.GoneAfter(SteadyNow() - kReturnTime));
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
