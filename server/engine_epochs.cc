// The parts of Engine that wait for clients: before the run, and before a round. The round loop is
// in engine.cc.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/fit_model.h"
#include "common/status.h"
#include "records/epochs.h"
#include "server/engine.h"
#include "server/steady_time.h"

namespace leeway {
namespace {

// The client that an epoch is about, if it is one.
std::string OnlyOne(const EpochNames& names) {
  if (names.entered.size() + names.returned.size() + names.left.size() != 1) return "";
  return !names.entered.empty()    ? names.entered[0]
         : !names.returned.empty() ? names.returned[0]
                                   : names.left[0];
}

}  // namespace

absl::Status Engine::GatherClients() {
  Membership::Data data;
  Membership::Begun first;
  uint64_t clients = 0;
  uint64_t examples = 0;
  {
    MutexLock lock(&mu_);
    if (script_) {
      if (progress_.state() == v1::FAILED) {
        LEEWAY_RETURN_IF_ERROR(journal_->GoOn(progress_.message()));
      }
      progress_.SetState(script_->done() ? progress_.state() : v1::RUNNING);
      return absl::OkStatus();
    }
    LEEWAY_ASSIGN_OR_RETURN(const EpochChange change, AwaitFirstEpoch());
    first = membership_.BeginEpoch(change, 1);
    clients = membership_.roster().population();
    examples = membership_.roster().examples();
    data = *membership_.data();
  }
  LEEWAY_RETURN_IF_ERROR(MakeScript(data, clients, examples));
  LEEWAY_RETURN_IF_ERROR(
      journal_->Begin(data.schema, first.entered, script_->initial(), script_->Save()));
  MutexLock lock(&mu_);
  progress_.SetState(v1::RUNNING);
  return absl::OkStatus();
}

absl::Status Engine::MakeScript(const Membership::Data& data, uint64_t clients, uint64_t examples) {
  ModelPtr initial = options_.initial;
  if (options_.config.has_initial()) {
    LEEWAY_ASSIGN_OR_RETURN(const Parameters values,
                            FitModel(initial->file.view(), data.layout.tensors, data.layout.float64,
                                     "initial.file " + options_.config.initial().file()));
    initial = MakeModel(data.layout, values);
  }
  script_.emplace(options_.config, data.layout, clients, examples, initial);
  return script_->SetBaseline(options_.baseline);
}

absl::StatusOr<EpochChange> Engine::AwaitFirstEpoch() {
  const double limit = options_.config.cohort().gather_seconds();
  const absl::Time until = limit > 0 ? SteadyNow() + absl::Seconds(limit) : absl::InfiniteFuture();
  while (!stopping_) {
    absl::StatusOr<EpochChange> first = membership_.FirstEpoch(SteadyNow());
    if (!first.ok()) {
      LEEWAY_RETURN_IF_ERROR(AwaitMoreClients(until));
      continue;
    }
    LEEWAY_ASSIGN_OR_RETURN(const std::vector<Membership::OddProcess> odd,
                            membership_.AgreeOnData());
    if (odd.empty()) return first;
    for (const Membership::OddProcess& one : odd) {  // those who are left may be too few
      RefuseJoin(one.client, one.why);
      sessions_.Refuse(one.session, one.why);
      membership_.roster().Leave(one.session, SteadyNow());
    }
    progress_.SetJoined(membership_.roster().joined());
  }
  return absl::CancelledError("stopped while waiting for clients");
}

absl::Status Engine::AwaitMoreClients(absl::Time until) {
  const absl::Duration left = until - SteadyNow();
  if (left > absl::ZeroDuration()) {
    changed_.WaitWithDeadline(&mu_, absl::Now() + std::min(left, absl::Seconds(1)));
    return absl::OkStatus();
  }
  const Roster& roster = membership_.roster();
  std::vector<std::string> names;
  for (const Enrolment& client : roster.Newcomers()) names.push_back(client.id);
  std::sort(names.begin(), names.end());
  return absl::DeadlineExceededError(absl::StrCat(
      roster.expected() - roster.joined(), " of ", roster.expected(), " clients are missing after ",
      options_.config.cohort().gather_seconds(),
      " s (cohort.gather_seconds); joined so far: ", names.empty() ? "none" : FewNames(names),
      ". Start the others and then this server again, or lower cohort.clients"));
}

absl::StatusOr<EpochChange> Engine::AwaitNextEpoch(uint64_t round) {
  while (true) {
    absl::StatusOr<EpochChange> change = membership_.NextEpoch(round, SteadyNow());
    if (change.ok()) return change;
    if (stopping_) return absl::CancelledError("stopped while waiting for clients");
    changed_.Wait(&mu_);
  }
}

absl::StatusOr<RoundPlan> Engine::PlanRound() {
  while (true) {
    RoundPlan plan = script_->Next();
    const uint64_t round = plan.record.round();
    if (plan.cohort_of_rounds_ago > 0) {
      LEEWAY_ASSIGN_OR_RETURN(plan.cohort, journal_->Accepted(round - plan.cohort_of_rounds_ago));
    }
    Membership::Begun begun;
    {
      MutexLock lock(&mu_);
      membership_.Hold(!plan.may_begin_epoch);
      EpochChange change;
      if (plan.may_begin_epoch) {
        LEEWAY_ASSIGN_OR_RETURN(change, AwaitNextEpoch(round));
      }
      if (change.empty()) {
        attempts_.Begin(SteadyNow());
        plan.set_aside = attempts_.set_aside();
        return plan;
      }
      begun = membership_.BeginEpoch(change, round);
      script_->SetPopulation(membership_.roster().population(), membership_.roster().examples());
      journal_->AddEvent(v1::Event::EPOCH, OnlyOne(begun.names), EpochText(begun.names));
    }
    // Before any order leaves: a restarted server draws from the same clients.
    LEEWAY_RETURN_IF_ERROR(journal_->AddEpoch(begun.epoch, begun.entered));
  }
}

}  // namespace leeway
