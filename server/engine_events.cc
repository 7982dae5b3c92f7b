// The parts of Engine that tell of a run: who is missing or at fault, what was limited, phases and
// the end. The round loop is in engine.cc.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/status.h"
#include "server/engine.h"
#include "server/steady_time.h"

namespace leeway {
namespace {

// "a, b and 3 more".
std::string FewNames(absl::Span<const std::string> names) {
  constexpr size_t kMost = 10;
  const std::string first = absl::StrJoin(names.first(std::min(names.size(), kMost)), ", ");
  if (names.size() <= kMost) return first;
  return absl::StrCat(first, " and ", names.size() - kMost, " more");
}

}  // namespace

absl::Status Engine::AwaitMoreClients(absl::Time until) {
  const absl::Duration left = until - SteadyNow();
  if (left > absl::ZeroDuration()) {
    changed_.WaitWithDeadline(&mu_, absl::Now() + std::min(left, absl::Seconds(1)));
    return absl::OkStatus();
  }
  const uint32_t missing = roster_.expected() - roster_.joined();
  std::vector<std::string> names;
  for (const Enrolment& client : roster_.Newcomers()) names.push_back(client.id);
  std::sort(names.begin(), names.end());
  return absl::DeadlineExceededError(absl::StrCat(
      missing, " of ", roster_.expected(), " clients are missing after ",
      options_.config.cohort().gather_seconds(),
      " s (cohort.gather_seconds); joined so far: ", names.empty() ? "none" : FewNames(names),
      ". Start the others and then this server again, or lower cohort.clients"));
}

std::string Engine::PhaseName(uint32_t phase) const {
  if (phase >= static_cast<uint32_t>(options_.config.phases_size())) return "unknown";
  const v1::Phase& one = options_.config.phases(static_cast<int>(phase));
  const google::protobuf::FieldDescriptor* kind = one.GetReflection()->GetOneofFieldDescriptor(
      one, one.GetDescriptor()->FindOneofByName("kind"));
  return kind == nullptr ? "unknown" : kind->name();
}

void Engine::AddRepeat(const RoundPlan& plan) {
  journal_->AddEvent(
      v1::Event::RETRY, "",
      absl::StrCat("round ", plan.record.round(), ": ",
                   plan.task.max_norm() > 0 ? "half of the displacements are" : "one is",
                   " longer than ", options_.config.limits().median_multiple(),
                   " times the median (limits.median_multiple) of ",
                   plan.task.max_norm() > 0 ? "the round before" : "all",
                   "; none counts, and the round is taken again with the limit ",
                   script_->Next().task.max_norm(), " (0: none)"));
}

void Engine::AddClipped(const v1::RoundRecord& record) {
  if (record.clipped() == 0) return;
  journal_->AddEvent(
      v1::Event::CLIPPED, "",
      absl::StrCat("round ", record.round(), ": ", record.clipped(),
                   " client(s) scaled their displacement down to the limit ", record.norm_limit(),
                   ", ", options_.config.limits().median_multiple(),
                   " times the median of the round before"));
}

void Engine::LogPhase(uint32_t phase, uint64_t round) const {
  LogLine line;
  line.what = "phase";
  line.text =
      absl::StrCat(phase + 1, " of ", options_.config.phases_size(), " begins: ", PhaseName(phase));
  line.round = round;
  journal_->LogOnly(std::move(line));
}

void Engine::LogEnd(const absl::Status& outcome) const {
  LogLine line;
  line.what = outcome.ok() ? "done" : absl::IsCancelled(outcome) ? "stopped" : "failed";
  line.level =
      outcome.ok() || absl::IsCancelled(outcome) ? LogLine::Level::kInfo : LogLine::Level::kError;
  line.text = outcome.ok()
                  ? absl::StrCat("all ", options_.config.phases_size(),
                                 " phases are complete after ", journal_->committed(),
                                 " rounds; see `leeway show ", options_.state_directory, "`")
                  : std::string(outcome.message());
  line.round = journal_->committed();
  {
    MutexLock lock(&mu_);
    const double idle = run_idle_time_.share();
    if (outcome.ok() && idle > 0) absl::StrAppendFormat(&line.text, "; idle share %.3f", idle);
  }
  journal_->LogOnly(std::move(line));
}

// Once in a round that needs clients that have been gone for longer than it takes to come back.
void Engine::LogAbsent(absl::Time now) {
  if (absent_logged_ || now < round_->spec().opened + round_->spec().return_time) return;
  absent_logged_ = true;
  const std::vector<ClientIndex> absent = round_->Absent();
  if (absent.empty()) return;
  LogLine line;
  line.level = LogLine::Level::kWarning;
  line.what = "waiting";
  line.text = absl::StrCat("the round needs more reports, and the processes of ", absent.size(),
                           " of its clients are gone: ", NamesOf(absent),
                           "; start them again, or lower cohort.minimum_reports");
  line.round = round_->spec().round;
  journal_->LogOnly(std::move(line));
}

std::string Engine::NamesOf(absl::Span<const ClientIndex> clients) const {
  std::vector<std::string> names;
  names.reserve(clients.size());
  for (const ClientIndex client : clients) names.push_back(roster_.clients()[client].id);
  return FewNames(names);
}

void Engine::JudgeFailures() {
  const std::vector<Failure> failures = std::exchange(failures_, {});
  // Where most clients fail, the fault is the model's, the configuration's or the server's.
  if (round_->failures() > round_->reports()) return;
  // Out before the last attempt, which would else fail like those before it.
  const uint32_t most = std::min(options_.config.limits().quarantine_after(),
                                 std::max(options_.config.cohort().attempts(), 2u) - 1);
  for (const Failure& failure : failures) {
    if (failure.fault == Fault::kShared) {
      if (const auto index = roster_.Find(failure.client)) set_aside_.insert(*index);
      continue;
    }
    const uint32_t refused = roster_.CountRefused(failure.client);
    if (refused < most || !roster_.Quarantine(failure.client)) continue;
    journal_->AddEvent(v1::Event::QUARANTINED, failure.client,
                       absl::StrCat("failed, or was refused, ", refused,
                                    " times in a row: out of the run. The last: ", failure.why));
  }
}

}  // namespace leeway
