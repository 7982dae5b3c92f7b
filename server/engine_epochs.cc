// The parts of Engine that decide who takes part: gathering clients, what their data look like,
// and the epochs, which begin between rounds. The round loop is in engine.cc.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/fit_model.h"
#include "common/status.h"
#include "records/epochs.h"
#include "server/engine.h"
#include "server/steady_time.h"

namespace leeway {
namespace {

StoredClient ToStored(const Enrolment& client) {
  return {client.id, client.examples, client.test_examples, client.digest};
}

v1::Epoch EpochOf(const Roster& roster, const EpochChange& change, uint64_t round) {
  v1::Epoch epoch;
  epoch.set_number(roster.epoch());
  epoch.set_first_round(round);
  epoch.set_roster(static_cast<uint32_t>(roster.clients().size()));
  epoch.mutable_returned()->Add(change.returned.begin(), change.returned.end());
  epoch.mutable_left()->Add(change.left.begin(), change.left.end());
  epoch.set_population(roster.population());
  return epoch;
}

EpochNames NamesIn(const Roster& roster, const EpochChange& change, const v1::Epoch& epoch) {
  EpochNames names = {epoch.number(), epoch.first_round(), epoch.population(), {}, {}, {}};
  for (const Enrolment& client : change.entered) names.entered.push_back(client.id);
  for (const ClientIndex index : change.returned) {
    names.returned.push_back(roster.clients()[index].id);
  }
  for (const ClientIndex index : change.left) names.left.push_back(roster.clients()[index].id);
  return names;
}

// The client that an epoch is about, if it is one.
std::string OnlyOne(const EpochNames& names) {
  if (names.entered.size() + names.returned.size() + names.left.size() != 1) return "";
  return !names.entered.empty()    ? names.entered[0]
         : !names.returned.empty() ? names.returned[0]
                                   : names.left[0];
}

}  // namespace

absl::Status Engine::OddShape(absl::string_view client, const v1::DataSchema& shape,
                              const v1::DataSchema& common) {
  return absl::InvalidArgumentError(
      absl::StrCat("data of '", client, "' has the shape {", shape.ShortDebugString(),
                   "}, most of the run's clients have {", common.ShortDebugString(),
                   "}; prepare all clients' data alike"));
}

// Waits for the clients and begins the first epoch; at once when resuming.
absl::Status Engine::GatherClients() {
  Data data;
  std::vector<StoredClient> stored;
  uint64_t population = 0;
  uint64_t examples = 0;
  {
    MutexLock lock(&mu_);
    if (script_) {
      if (progress_.state() == v1::FAILED) {
        LEEWAY_RETURN_IF_ERROR(journal_->GoOn(progress_.message()));
      }
      progress_.clear_message();
      if (!script_->done()) progress_.set_state(v1::RUNNING);
      return absl::OkStatus();
    }
    LEEWAY_ASSIGN_OR_RETURN(const EpochChange first, AwaitFirstEpoch());
    roster_.BeginEpoch(first);
    population = roster_.population();
    examples = roster_.examples();
    for (const Enrolment& client : roster_.clients()) stored.push_back(ToStored(client));
    data = *data_;
  }
  ModelPtr initial = options_.initial;
  if (options_.config.has_initial()) {
    LEEWAY_ASSIGN_OR_RETURN(const Parameters values,
                            FitModel(initial->file.view(), data.layout.tensors, data.layout.float64,
                                     "initial.file " + options_.config.initial().file()));
    initial = MakeModel(data.layout, values);
  }
  script_.emplace(options_.config, std::move(data.layout), population, examples, initial);
  LEEWAY_RETURN_IF_ERROR(script_->SetBaseline(options_.baseline));
  LEEWAY_RETURN_IF_ERROR(journal_->Begin(data.schema, stored, script_->initial(), script_->Save()));
  MutexLock lock(&mu_);
  progress_.set_state(v1::RUNNING);
  return absl::OkStatus();
}

absl::StatusOr<EpochChange> Engine::AwaitFirstEpoch() {
  const double limit = options_.config.cohort().gather_seconds();
  const absl::Time until = limit > 0 ? SteadyNow() + absl::Seconds(limit) : absl::InfiniteFuture();
  while (!stopping_) {
    absl::StatusOr<EpochChange> first = absl::UnavailableError("too few clients");
    if (!options_.epochs.empty()) {
      first = roster_.FollowPlan(options_.epochs[0]);
    } else if (roster_.ready()) {
      first = roster_.NextEpoch(SteadyNow(), absl::InfiniteDuration(), 0);
    }
    if (!first.ok()) {
      LEEWAY_RETURN_IF_ERROR(AwaitMoreClients(until));
      continue;
    }
    LEEWAY_ASSIGN_OR_RETURN(const bool agreed, AgreeOnData());
    if (agreed) return first;  // else those who are left may be too few
  }
  return absl::CancelledError("stopped while waiting for clients");
}

absl::StatusOr<bool> Engine::AgreeOnData() {
  const std::string common = roster_.CommonShape();
  v1::DataSchema schema;
  if (!schema.ParseFromString(common)) return absl::InternalError("a schema cannot be read");
  if (!options_.config.model().has_file()) {
    const auto odd = roster_.SessionsWithout(common);
    for (const auto& [session, shape, client] : odd) {
      v1::DataSchema own;
      own.ParseFromString(shape);
      const absl::Status why = OddShape(client, own, schema);
      RefuseJoin(client, why);
      sessions_.Refuse(session, why);
      roster_.Leave(session, SteadyNow());
    }
    progress_.set_joined(roster_.joined());
    if (!odd.empty()) return false;
  }
  LEEWAY_ASSIGN_OR_RETURN(ModelLayout layout, LayoutOf(options_.config.model(), schema));
  data_ = Data{std::move(schema), std::move(layout)};
  return true;
}

absl::StatusOr<EpochChange> Engine::NextEpoch(uint64_t round) {
  if (options_.epochs.empty()) {
    const v1::Cohort& rule = options_.config.cohort();
    const absl::Duration absent_after = rule.absent_after_seconds() > 0
                                            ? absl::Seconds(rule.absent_after_seconds())
                                            : absl::InfiniteDuration();
    return roster_.NextEpoch(SteadyNow(), absent_after, rule.minimum_reports());
  }
  const size_t begun = roster_.epoch();
  if (begun >= options_.epochs.size() || options_.epochs[begun].first_round > round) {
    return EpochChange();
  }
  while (!stopping_) {
    absl::StatusOr<EpochChange> change = roster_.FollowPlan(options_.epochs[begun]);
    if (change.ok()) return change;
    changed_.Wait(&mu_);
  }
  return absl::CancelledError("stopped while waiting for clients");
}

absl::StatusOr<RoundPlan> Engine::PlanRound() {
  while (true) {
    RoundPlan plan = script_->Next();
    EpochChange change;
    v1::Epoch epoch;
    {
      MutexLock lock(&mu_);
      holds_epoch_ = !plan.may_begin_epoch;
      if (holds_epoch_) return plan;
      LEEWAY_ASSIGN_OR_RETURN(change, NextEpoch(plan.record.round()));
      if (change.empty()) return plan;
      roster_.BeginEpoch(change);
      epoch = EpochOf(roster_, change, plan.record.round());
      script_->SetPopulation(roster_.population(), roster_.examples());
      const EpochNames names = NamesIn(roster_, change, epoch);
      journal_->AddEvent(v1::Event::EPOCH, OnlyOne(names), EpochText(names));
    }
    std::vector<StoredClient> entered;
    for (const Enrolment& client : change.entered) entered.push_back(ToStored(client));
    // Before any order leaves: a restarted server draws from the same clients.
    LEEWAY_RETURN_IF_ERROR(journal_->AddEpoch(epoch, entered));
  }
}

std::string Engine::WaitingText(SessionId session) const {
  if (roster_.epoch() == 0) return "";
  size_t waiting = 0;
  for (const ClientIndex index : roster_.HostedBy(session)) {
    if (index == kNoIndex || !roster_.present(index)) ++waiting;
  }
  if (waiting == 0) return "";
  std::string text = absl::StrCat(waiting, waiting == 1 ? " client waits" : " clients wait");
  if (!options_.epochs.empty()) return absl::StrCat(text, " for the round named by --epochs-from");
  absl::StrAppend(&text, waiting == 1 ? " and takes" : " and take",
                  " part from the next training round on");
  if (!holds_epoch_) return text;
  return absl::StrCat(text, ": phase ", progress_.phase() + 1, " (", PhaseName(progress_.phase()),
                      ") needs the same clients to its end");
}

}  // namespace leeway
