#include "server/engine.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/digest.h"
#include "common/failpoint.h"
#include "common/sampler.h"
#include "common/status.h"
#include "common/sums.h"
#include "common/wire.h"
#include "records/config.h"
#include "server/measures.h"
#include "server/steady_time.h"

namespace leeway {
namespace {

// A slice over a model's file that keeps the model alive.
grpc::Slice ShareFile(const ModelPtr& model) {
  auto* owner = new ModelPtr(model);
  return grpc::Slice(
      const_cast<std::byte*>(model->file.data()), model->file.size(),
      [](void* p) { delete static_cast<ModelPtr*>(p); }, owner);
}

constexpr unsigned kMostFolders = 8;  // threads that fold: more are not faster than memory
constexpr absl::Duration kCommitsTold = absl::Milliseconds(50);

std::string NewRunId() {
  std::random_device random;
  return absl::StrFormat("%08x%08x", random(), random());
}

}  // namespace

Engine::Engine(Options options)
    : options_(std::move(options)),
      folders_(std::clamp(std::thread::hardware_concurrency(), 1u, kMostFolders)) {
  progress_.set_state(v1::GATHERING);
}

// The last session's Leave, or the last observer's, may still be on its way out.
Engine::~Engine() {
  { MutexLock lock(&observers_mu_); }
  MutexLock lock(&mu_);
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Open(Options options) {
  std::unique_ptr<Engine> engine(new Engine(std::move(options)));
  LEEWAY_ASSIGN_OR_RETURN(engine->store_, Store::Open(engine->options_.state_directory));
  if (engine->store_->begun()) {
    LEEWAY_RETURN_IF_ERROR(engine->Resume());
  } else {
    MutexLock lock(&engine->mu_);
    engine->coordinator_.emplace(engine->options_.config.cohort().clients());
    engine->progress_.set_expected(engine->options_.config.cohort().clients());
    engine->run_id_ = NewRunId();
  }
  return engine;
}

absl::Status Engine::Resume() {
  MutexLock lock(&mu_);
  LEEWAY_ASSIGN_OR_RETURN(const v1::RunConfig config, store_->Config());
  if (!google::protobuf::util::MessageDifferencer::Equals(config, options_.config)) {
    return absl::FailedPreconditionError(
        absl::StrCat(options_.state_directory,
                     " holds a run with another configuration; give that configuration to resume "
                     "it, or another --state directory to start anew"));
  }
  LEEWAY_ASSIGN_OR_RETURN(run_id_, store_->RunId());
  LEEWAY_ASSIGN_OR_RETURN(schema_, store_->Schema());
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<StoredClient> stored, store_->Roster());
  std::vector<Enrolment> roster;
  roster.reserve(stored.size());
  uint64_t examples = 0;
  for (const StoredClient& c : stored) {
    roster.push_back({c.id, c.examples, c.test_examples});
    examples += c.examples;
  }
  coordinator_.emplace(std::move(roster));
  LEEWAY_ASSIGN_OR_RETURN(layout_, LayoutOf(options_.config.model(), *schema_));
  LEEWAY_ASSIGN_OR_RETURN(const ScriptState bytes, store_->Script());
  v1::ScriptState state;
  if (!state.ParseFromString(bytes.bytes)) {
    return absl::DataLossError("the saved state of the run cannot be read");
  }
  LEEWAY_ASSIGN_OR_RETURN(
      script_, Script::Resume(
                   options_.config, *layout_, coordinator_->population(), state,
                   [this](const std::string& sha) { return store_->LoadModel(sha); }, examples));
  committed_ = state.round();
  LEEWAY_ASSIGN_OR_RETURN(const uint64_t last, store_->LastRound());
  if (last != committed_) {
    return absl::DataLossError(
        absl::StrCat(options_.state_directory, "/run.db: the last record is of round ", last,
                     ", but the run stands at round ", committed_,
                     "; restore the directory from a copy or start a new run"));
  }
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<v1::Event> events, store_->EventsAfter(0));
  if (!events.empty()) last_event_ = events.back().sequence();
  for (const v1::Event& event : events) {
    if (event.kind() == kQuarantined) coordinator_->Quarantine(event.subject());
  }
  LEEWAY_ASSIGN_OR_RETURN(const v1::RunState run_state, store_->State());
  LEEWAY_ASSIGN_OR_RETURN(const std::string message, store_->Message());
  progress_.set_state(run_state);
  progress_.set_message(message);
  progress_.set_expected(coordinator_->expected());
  progress_.set_round(committed_);
  MutexLock reader_lock(&reader_mu_);
  LEEWAY_ASSIGN_OR_RETURN(reader_, Store::OpenReadOnly(options_.state_directory));
  return absl::OkStatus();
}

absl::Status Engine::Run() {
  absl::Status outcome = [this] {
    {
      MutexLock lock(&mu_);
      if (progress_.state() == v1::FAILED) {
        return absl::FailedPreconditionError(
            absl::StrCat("this run failed earlier: ", progress_.message()));
      }
    }
    LEEWAY_RETURN_IF_ERROR(Gather());
    return RunRounds();
  }();
  if (absl::Status flushed = Flush(); !flushed.ok()) outcome = flushed;
  return Finish(outcome);
}

// Waits for the clients and fixes the roster; at once when resuming.
absl::Status Engine::Gather() {
  if (script_) return absl::OkStatus();
  std::vector<StoredClient> roster;
  uint64_t clients = 0;
  uint64_t examples = 0;
  ModelLayout layout;
  v1::DataSchema schema;
  {
    MutexLock lock(&mu_);
    while (!coordinator_->ready() && !stopping_) changed_.Wait(&mu_);
    if (stopping_) return absl::CancelledError("stopped while waiting for clients");
    coordinator_->Freeze();
    clients = coordinator_->population();
    for (const Enrolment& e : coordinator_->roster()) {
      roster.push_back({e.id, e.examples, e.test_examples});
      examples += e.examples;
    }
    layout = *layout_;
    schema = *schema_;
  }
  script_.emplace(options_.config, layout, clients, examples, options_.initial);
  const ModelPtr models[] = {script_->initial()};
  disk_ = store_->Begin(run_id_, options_.config, schema, roster, models,
                        ScriptState{script_->Save().SerializeAsString()});
  LEEWAY_RETURN_IF_ERROR(disk_);
  MutexLock lock(&reader_mu_);
  LEEWAY_ASSIGN_OR_RETURN(reader_, Store::OpenReadOnly(options_.state_directory));
  return absl::OkStatus();
}

absl::Status Engine::RunRounds() {
  {
    MutexLock lock(&mu_);
    if (!script_->done()) progress_.set_state(v1::RUNNING);
  }
  while (!script_->done()) {
    RoundPlan plan = script_->Next();
    const absl::Time opened = SteadyNow();
    LEEWAY_ASSIGN_OR_RETURN(const Collected collected, Collect(plan));
    LEEWAY_RETURN_IF_ERROR(Commit(std::move(plan), collected, opened));
    untold_ = true;  // observers hear of it after the next orders have left
  }
  return absl::OkStatus();
}

absl::StatusOr<RoundSpec> Engine::DrawRound(const RoundPlan& plan, uint32_t attempt) {
  const v1::Cohort& rule = options_.config.cohort();
  const uint64_t seed = options_.config.seed();
  RoundSpec spec;
  spec.round = plan.record.round();
  spec.attempt = attempt;
  spec.opened = SteadyNow();
  spec.deadline = spec.opened + absl::Seconds(rule.deadline_seconds());
  MutexLock lock(&mu_);
  const std::vector<ClientIndex>& eligible = coordinator_->eligible();
  if (eligible.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("all clients are quarantined. Last refusal: ", last_failure_));
  }
  const auto population = static_cast<uint32_t>(eligible.size());
  const uint32_t wanted = plan.sample == 0 ? population : std::min(plan.sample, population);
  const bool trains = plan.record.kind() == v1::TRAIN_ROUND;
  const uint32_t asked = std::min(population, wanted + (trains ? rule.spare() : 0));
  for (const uint32_t i : SampleCohort(seed, spec.round, attempt, population, asked)) {
    spec.cohort.push_back(eligible[i]);
  }
  if (rule.replace_after_seconds() > 0) {
    spec.replace_after = absl::Seconds(rule.replace_after_seconds());
    for (const uint32_t i : DrawReserves(seed, spec.round, attempt, population, asked)) {
      spec.reserves.push_back(eligible[i]);
    }
  }
  if (plan.task.groups() > 1) {
    spec.groups = DrawGroups(seed, spec.round, attempt, asked, plan.task.groups());
  }
  if (asked > wanted) spec.enough = wanted;
  spec.minimum = rule.minimum_reports() == 0 ? wanted : std::min(rule.minimum_reports(), wanted);
  return spec;
}

absl::StatusOr<Engine::Collected> Engine::Collect(const RoundPlan& plan) {
  const v1::Cohort& rule = options_.config.cohort();
  for (uint32_t attempt = 1; attempt <= rule.attempts(); ++attempt) {
    LEEWAY_ASSIGN_OR_RETURN(RoundSpec spec, DrawRound(plan, attempt));
    const auto sampled = static_cast<uint32_t>(spec.cohort.size());
    if (Asks(plan.task, kTestExamples)) AddEvaluators(spec);
    Failpoint("round.before_open");
    OpenRound(plan, std::move(spec));
    Failpoint("round.after_open");
    const Coordinator::RoundState state = AwaitRound();
    MutexLock lock(&mu_);
    const uint32_t reports = coordinator_->reports();
    const uint32_t replaced = coordinator_->replaced();
    Collected collected{coordinator_->CloseRound(), sampled, reports, attempt, replaced};
    if (state == Coordinator::RoundState::kComplete) return collected;
    LEEWAY_RETURN_IF_ERROR(disk_);
    if (stopping_) return absl::CancelledError("stopped");
    AddEvent("retry", "",
             absl::StrCat("round ", plan.record.round(), " got ", reports, " of ", sampled,
                          " reports; trying again"));
  }
  MutexLock lock(&mu_);
  return absl::DeadlineExceededError(absl::StrCat(
      "round ", plan.record.round(), " did not get enough reports in ", rule.attempts(),
      " attempts of at most ", rule.deadline_seconds(), " s. ",
      last_failure_.empty() ? "Check the clients' logs, or change cohort.minimum_reports, "
                              "cohort.deadline_seconds or cohort.attempts"
                            : absl::StrCat("Last refusal: ", last_failure_)));
}

// All evaluators take part in an evaluation, in a group of their own. The round
// does not need them: it counts without one that is gone at the deadline.
void Engine::AddEvaluators(RoundSpec& spec) {
  MutexLock lock(&mu_);
  spec.groups.assign(spec.cohort.size(), kClientGroup);
  for (uint32_t i = coordinator_->population(); i < coordinator_->roster().size(); ++i) {
    spec.cohort.push_back(i);
    spec.groups.push_back(kEvaluatorGroup);
    ++spec.evaluators;
  }
}

void Engine::OpenRound(const RoundPlan& plan, RoundSpec spec) {
  v1::Order order;
  order.set_run_id(run_id_);
  order.set_round(spec.round);
  order.set_attempt(spec.attempt);
  *order.mutable_task() = plan.task;
  v1::ModelRef& model = *order.mutable_model();
  model.set_sha256(plan.base->sha256);
  model.set_size(plan.base->file.size());
  if (plan.base->file.size() <= kInlineModelBytes)
    model.set_inline_(std::string(plan.base->file.view()));

  // Orders are written after the lock is released: reports to the first ones
  // need not wait for the last ones.
  Outbox orders;
  grpc::Slice common;
  {
    MutexLock lock(&mu_);
    uint64_t weight = 0;
    std::vector<ClientIndex> possible = spec.cohort;
    if (plan.task.weighting() == v1::EXAMPLES) {  // one who steps in may weigh more
      possible.insert(possible.end(), spec.reserves.begin(), spec.reserves.end());
    }
    for (const ClientIndex c : possible) {
      weight += plan.task.weighting() == v1::EXAMPLES ? coordinator_->roster()[c].examples : 1;
    }
    SetUnits(weight, *order.mutable_task());
    if (Asks(plan.task, kDisplacement)) {
      order.mutable_task()->set_max_norm(options_.config.limits().max_norm());
      order.mutable_task()->set_clip(options_.config.limits().norm_policy() == v1::CLIP);
    }
    order.set_committed_round(committed_);
    OpenTask open;
    open.task = order.task();
    open.sums = TaskSums(open.task, layout_->size());
    open.base = plan.base;
    open.order = grpc::Slice(order.SerializeAsString());
    open.file = ShareFile(plan.base);
    common = open.order;
    {
      MutexLock fold_lock(&fold_mu_);
      tally_.Reset(open.sums.shape(), &folders_);
    }
    open_ = std::move(open);
    progress_.set_phase(plan.record.phase());
    progress_.set_round(spec.round);
    progress_.set_round_in_phase(plan.record.round_in_phase());
    progress_.set_rounds_in_phase(plan.rounds_in_phase);
    progress_.set_sampled(static_cast<uint32_t>(spec.cohort.size()) - spec.evaluators);
    Address(coordinator_->OpenRound(std::move(spec)), orders);
  }
  SendOrders(common, orders);
}

void Engine::SendOrders(const grpc::Slice& common, const Outbox& orders) {
  for (const auto& [sink, own] : orders) sink->Send(common, own);
  WakeStreams();
}

void Engine::Address(const std::vector<Assignment>& work, Outbox& outbox) const {
  for (const Assignment& part : work) {
    const auto sink = sinks_.find(part.session);
    if (sink == sinks_.end() || part.clients.empty()) continue;
    outbox.emplace_back(sink->second, OwnPart(part));
  }
}

v1::Order Engine::OwnPart(const Assignment& work) const {
  v1::Order own;
  own.mutable_clients()->Add(work.clients.begin(), work.clients.end());
  if (open_->sums.shape().groups > 1)
    own.mutable_groups()->Add(work.groups.begin(), work.groups.end());
  if (options_.meter) options_.meter->Ordered(open_->order.size() + own.ByteSizeLong());
  return own;
}

Coordinator::RoundState Engine::AwaitRound() {
  while (true) {
    TellCommits();
    if (!disk_.ok()) return Coordinator::RoundState::kShort;
    bool events = false;
    Outbox orders;
    grpc::Slice common;
    {
      MutexLock lock(&mu_);
      const absl::Time now = SteadyNow();
      const Coordinator::RoundState state = coordinator_->State(now);
      if (state != Coordinator::RoundState::kCollecting) return state;
      if (stopping_) return Coordinator::RoundState::kShort;
      const uint32_t replaced = coordinator_->replaced();
      Address(coordinator_->Replace(now), orders);
      if (coordinator_->replaced() > replaced) {
        AddEvent("replaced", "",
                 absl::StrCat("round ", coordinator_->spec().round, ": ",
                              coordinator_->replaced() - replaced,
                              " client(s) whose process is gone gave their place to others"));
      }
      // In steps, because the clock that wakes us may be set back meanwhile.
      absl::Duration wait = std::min(coordinator_->NextChange() - now, absl::Seconds(1));
      // Past the deadline only a report that is being folded keeps the round open; its
      // end wakes us.
      if (wait <= absl::ZeroDuration()) wait = absl::Seconds(1);
      if (untold_) wait = std::min(wait, told_ + kCommitsTold - now);
      if (new_events_.empty()) changed_.WaitWithDeadline(&mu_, absl::Now() + wait);
      events = !new_events_.empty();
      common = open_->order;
    }
    if (!orders.empty()) SendOrders(common, orders);
    // Between two rounds of a fast run events wait for the commit.
    if (events && FlushEvents().ok()) NotifyObservers();
  }
}

// Observers hear of a commit once the next orders have left, unless they have just heard
// of another: a run of a thousand rounds a second does not stop to tell them of each.
void Engine::TellCommits() {
  WriteRound().IgnoreError();  // disk_ says it
  if (!untold_ || SteadyNow() < told_ + kCommitsTold) return;
  Flush().IgnoreError();
  NotifyObservers();
  untold_ = false;
  told_ = SteadyNow();
}

absl::Status Engine::Commit(RoundPlan plan, const Collected& collected, absl::Time opened) {
  LEEWAY_RETURN_IF_ERROR(disk_);
  absl::Status absorbed;
  {
    MutexLock lock(&fold_mu_);
    absorbed = script_->Absorb(plan, tally_, &folders_);
  }
  LEEWAY_RETURN_IF_ERROR(FlushEvents());
  LEEWAY_RETURN_IF_ERROR(absorbed);
  RoundCommit commit;
  commit.record = std::move(plan.record);
  commit.record.set_sampled(collected.sampled);
  commit.record.set_reports(collected.reports);
  commit.record.set_attempts(collected.attempts);
  commit.record.set_replaced(collected.replaced);
  commit.record.set_opened(absl::ToDoubleSeconds(opened - absl::UnixEpoch()));
  commit.record.set_seconds(absl::ToDoubleSeconds(SteadyNow() - opened));
  commit.accepted = collected.accepted;
  if (commit.record.kind() == v1::TRAIN_ROUND) commit.models.push_back(script_->current());
  // An optimum phase that has just ended leaves its model.
  const bool found = commit.record.kind() == v1::OPTIMUM_ROUND && script_->optimum() &&
                     script_->Save().round_in_phase() == 0;
  if (found) {
    commit.models.push_back(script_->optimum());
    commit.names.push_back({"optimum", script_->optimum()->sha256});
  }
  commit.script.bytes = script_->Save().SerializeAsString();
  const uint64_t round = commit.record.round();
  unwritten_ = std::move(commit);
  if (options_.config.durability() != v1::RELAXED) LEEWAY_RETURN_IF_ERROR(WriteRound());
  MutexLock lock(&mu_);
  committed_ = round;
  return absl::OkStatus();
}

absl::Status Engine::WriteRound() {
  if (!unwritten_) return absl::OkStatus();
  const RoundCommit commit = *std::exchange(unwritten_, std::nullopt);
  const absl::Time begun = absl::Now();
  disk_ = store_->Commit(commit);
  LEEWAY_RETURN_IF_ERROR(disk_);
  if (options_.meter) options_.meter->Committed(absl::Now() - begun, commit.record);
  return absl::OkStatus();
}

absl::Status Engine::Flush() {
  LEEWAY_RETURN_IF_ERROR(WriteRound());
  if (disk_.ok()) disk_ = store_->Flush();
  return disk_;
}

absl::Status Engine::Finish(const absl::Status& outcome) {
  if (absl::IsCancelled(outcome) || !disk_.ok()) {
    CloseSessions(false, absl::UnavailableError("the server is stopping; it will resume this run"));
    return outcome;
  }
  absl::Status stored = FlushEvents();
  const v1::RunState state = outcome.ok() ? v1::DONE : v1::FAILED;
  if (stored.ok() && script_) {
    std::vector<NamedModel> names;
    names.push_back({"final", script_->current()->sha256});
    stored = store_->Finish(state, outcome.message(), names);
  }
  {
    MutexLock lock(&mu_);
    progress_.set_state(state);
    progress_.set_message(std::string(outcome.message()));
  }
  NotifyObservers();
  CloseSessions(true, absl::OkStatus());
  AwaitStragglers();
  return outcome.ok() ? stored : outcome;
}

void Engine::Stop() {
  MutexLock lock(&mu_);
  stopping_ = true;
  changed_.SignalAll();
}

}  // namespace leeway
