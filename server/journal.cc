#include "server/journal.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/reason.h"
#include "common/status.h"
#include "common/utf8.h"
#include "records/same_run.h"
#include "server/steady_time.h"

namespace leeway {
namespace {

// A run of a thousand rounds a second does not stop to tell observers of each.
constexpr absl::Duration kBatch = absl::Milliseconds(50);

// How often it is recorded that a process came or went.
constexpr uint64_t kMostPresences = 200;
constexpr uint64_t kMostPresencesPerClient = 20;

// Of what somebody else may have written.
constexpr size_t kMostReasonBytes = 1024;
constexpr size_t kMostNameBytes = 200;

std::string NewRunId() {
  std::random_device random;
  return absl::StrFormat("%08x%08x", random(), random());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(Options options, Observers* observers) {
  std::unique_ptr<Journal> journal(new Journal(std::move(options), observers));
  const std::string& directory = journal->options_.directory;
  LEEWAY_ASSIGN_OR_RETURN(journal->store_, Store::Open(directory, journal->options_.chain_key));
  if (!journal->store_->begun()) {
    journal->run_id_ = NewRunId();
    return journal;
  }
  LEEWAY_ASSIGN_OR_RETURN(const v1::RunConfig config, journal->store_->Config());
  const ConfigChanges changes = CompareConfigs(config, journal->options_.config);
  if (!changes.refused.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory, " holds a run with another configuration: ", changes.refused,
                     ". Give that configuration to resume it, or another --state directory to "
                     "start anew (",
                     kMayChange, ")"));
  }
  journal->changes_ = changes.allowed;
  if (config.SerializeAsString() != journal->options_.config.SerializeAsString()) {
    LEEWAY_RETURN_IF_ERROR(journal->store_->ChangeConfig(journal->options_.config));
  }
  LEEWAY_ASSIGN_OR_RETURN(journal->run_id_, journal->store_->RunId());
  return journal;
}

absl::StatusOr<std::optional<Journal::SavedRun>> Journal::Load() {
  if (!store_->begun()) return std::nullopt;
  SavedRun saved;
  LEEWAY_ASSIGN_OR_RETURN(saved.schema, store_->Schema());
  LEEWAY_ASSIGN_OR_RETURN(saved.roster, store_->Roster());
  LEEWAY_ASSIGN_OR_RETURN(saved.epochs, store_->Epochs());
  LEEWAY_ASSIGN_OR_RETURN(saved.standings, store_->Standings());
  LEEWAY_ASSIGN_OR_RETURN(saved.script, store_->Script());
  LEEWAY_ASSIGN_OR_RETURN(saved.state, store_->State());
  LEEWAY_ASSIGN_OR_RETURN(saved.message, store_->Message());
  LEEWAY_ASSIGN_OR_RETURN(const uint64_t last_round, store_->LastRound());
  if (last_round != saved.script.round()) {
    return absl::DataLossError(
        absl::StrCat(options_.directory, "/run.db: the last record is of round ", last_round,
                     ", but the run stands at round ", saved.script.round(),
                     "; restore the directory from a copy or start a new run"));
  }
  LEEWAY_ASSIGN_OR_RETURN(const uint64_t last_event, store_->LastEvent());
  LEEWAY_RETURN_IF_ERROR(ShowObservers(last_round, last_event));
  committed_ = last_round;
  {
    MutexLock lock(&mu_);
    last_event_ = last_event;
  }
  if (!changes_.empty()) {
    AddEvent(v1::Event::CHANGED, "", absl::StrCat("the configuration was changed: ", changes_));
  }
  return saved;
}

absl::StatusOr<std::vector<uint32_t>> Journal::Accepted(uint64_t round) const {
  if (unwritten_ && unwritten_->record.round() == round) return unwritten_->accepted;
  return store_->Accepted(round);
}

absl::StatusOr<std::map<uint64_t, std::vector<uint32_t>>> Journal::AcceptedSince(
    uint64_t round) const {
  std::map<uint64_t, std::vector<uint32_t>> accepted;
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<v1::RoundRecord> records,
                          store_->RoundsAfter(round - 1));
  for (const v1::RoundRecord& record : records) {
    if (record.kind() != v1::TRAIN_ROUND) continue;
    LEEWAY_ASSIGN_OR_RETURN(accepted[record.round()], store_->Accepted(record.round()));
  }
  return accepted;
}

// Lets observers read what was written before their time.
absl::Status Journal::ShowObservers(uint64_t rounds, uint64_t events) {
  LEEWAY_ASSIGN_OR_RETURN(std::unique_ptr<Store> reader, Store::OpenReadOnly(options_.directory));
  observers_.SetStore(std::move(reader), rounds, events);
  return absl::OkStatus();
}

absl::Status Journal::Begin(const v1::DataSchema& schema, const std::vector<StoredClient>& roster,
                            const ModelPtr& initial, v1::ScriptState script) {
  const ModelPtr models[] = {initial};
  HandOverEvents();
  disk_ = store_->Begin(run_id_, options_.config, schema, roster, models, std::move(script));
  LEEWAY_RETURN_IF_ERROR(disk_);
  return ShowObservers(0, 0);
}

absl::Status Journal::AddEpoch(const v1::Epoch& epoch, const std::vector<StoredClient>& entered) {
  LEEWAY_RETURN_IF_ERROR(disk_);
  LEEWAY_RETURN_IF_ERROR(WriteRound());
  HandOverEvents();
  disk_ = store_->AddEpoch(epoch, entered);
  return disk_;
}

absl::Status Journal::Commit(RoundCommit round) {
  LEEWAY_RETURN_IF_ERROR(disk_);
  LEEWAY_RETURN_IF_ERROR(WriteRound());
  const uint64_t number = round.record.round();
  unwritten_ = std::move(round);
  if (options_.config.durability() != v1::RELAXED) LEEWAY_RETURN_IF_ERROR(WriteRound());
  committed_ = number;
  return absl::OkStatus();
}

absl::Status Journal::WriteRound() {
  if (!unwritten_) return absl::OkStatus();
  RoundCommit round = *std::exchange(unwritten_, std::nullopt);
  v1::RoundRecord record = round.record;
  HandOverEvents();
  const absl::Time begun = absl::Now();
  disk_ = store_->Commit(std::move(round));
  LEEWAY_RETURN_IF_ERROR(disk_);
  if (options_.meter) options_.meter->Committed(absl::Now() - begun, record);
  round_news_ = true;
  if (options_.config.durability() == v1::RELAXED) {
    unflushed_.push_back(std::move(record));
  } else {
    observers_.AddRound(std::move(record));
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Time> Journal::CatchUp(absl::Time now) {
  LEEWAY_RETURN_IF_ERROR(WriteRound());
  LEEWAY_RETURN_IF_ERROR(disk_);
  const bool batch_ends = round_news_ && now >= notified_ + kBatch;
  if (batch_ends) {
    LEEWAY_RETURN_IF_ERROR(Flush());
    round_news_ = false;
    notified_ = now;
  }
  if (news_.exchange(false) || batch_ends) observers_.Notify();
  return round_news_ ? notified_ + kBatch : absl::InfiniteFuture();
}

absl::Status Journal::Flush() {
  if (store_->begun()) HandOverEvents();
  LEEWAY_RETURN_IF_ERROR(WriteRound());
  if (disk_.ok()) disk_ = store_->Flush();
  LEEWAY_RETURN_IF_ERROR(disk_);
  for (v1::RoundRecord& record : unflushed_) observers_.AddRound(std::move(record));
  unflushed_.clear();
  return absl::OkStatus();
}

absl::Status Journal::GoOn(const std::string& failure) {
  AddEvent(
      v1::Event::RESUMED, "",
      absl::StrCat("the run had failed and goes on with round ", committed_ + 1,
                   ", whose attempts are counted from 1 again. It had failed because ", failure));
  HandOverEvents();
  disk_ = store_->Finish(v1::RUNNING, "", {});
  return disk_;
}

absl::Status Journal::Finish(v1::RunState state, absl::string_view message,
                             const ModelPtr& final_model) {
  HandOverEvents();
  return store_->Finish(state, message, {{.name = "final", .sha256 = final_model->sha256}});
}

void Journal::AddEvent(EventKind kind, std::string subject, std::string text) {
  MutexLock lock(&mu_);
  // A client that fails in every round must not fill the disk.
  const std::optional<uint64_t> held =
      limit_.Pass(absl::StrCat(EventKindName(kind), " ", subject), absl::Now());
  if (!held) {
    if (options_.meter) options_.meter->Happened(kind);
    return;
  }
  if (*held > 0) absl::StrAppend(&text, " (and ", *held, " more like this before it)");
  AddLocked(kind, std::move(subject), std::move(text));
}

void Journal::AddRefusedJoin(const std::string& subject, const absl::Status& why) {
  std::string text = absl::StrCat("was not let in: ", OneLine(why.message(), kMostReasonBytes));
  MutexLock lock(&mu_);
  const std::optional<uint64_t> held =
      limit_.Pass(absl::StrCat("join ", ReasonOf(why)), absl::Now());
  if (!held) return;
  if (*held > 0) absl::StrAppend(&text, " (and ", *held, " more like this before it)");
  AddLocked(v1::Event::REFUSED, OneLine(subject, kMostNameBytes), std::move(text));
}

void Journal::LogOnly(LogLine line) const {
  if (options_.log == nullptr) return;
  line.run = run_id_;
  options_.log->Write(line);
}

void Journal::AddPresence(EventKind kind, std::string subject, std::string text) {
  const uint64_t most =
      kMostPresences + kMostPresencesPerClient * uint64_t{options_.config.cohort().clients()};
  MutexLock lock(&mu_);
  if (presences_ > most) return;
  if (++presences_ <= most) return AddLocked(kind, std::move(subject), std::move(text));
  AddLocked(kind, "",
            absl::StrCat("processes have come or gone ", most,
                         " times; from here on this is not recorded"));
}

void Journal::AddLocked(EventKind kind, std::string subject, std::string text) {
  v1::Event event;
  event.set_sequence(++last_event_);
  event.set_time(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  event.set_kind(kind);
  event.set_subject(std::move(subject));
  event.set_text(std::move(text));
  LogLine line;
  line.level = IsTrouble(kind) ? LogLine::Level::kWarning : LogLine::Level::kInfo;
  line.what = EventKindName(kind);
  line.client = event.subject();
  line.text = event.text();
  line.round = committed_ + 1;  // the one that is open
  LogOnly(std::move(line));
  if (options_.meter) options_.meter->Happened(kind);
  observers_.AddEvent(event);
  new_events_.push_back(std::move(event));
  news_ = true;
}

void Journal::HandOverEvents() {
  std::vector<v1::Event> events;
  {
    MutexLock lock(&mu_);
    events.swap(new_events_);
  }
  for (v1::Event& event : events) store_->AddEvent(std::move(event));
}

}  // namespace leeway
