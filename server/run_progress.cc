#include "server/run_progress.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace leeway {

std::string RunProgress::PhaseName() const {
  const uint32_t phase = now_.phase();
  if (phase >= static_cast<uint32_t>(config_.phases_size())) return "unknown";
  const v1::Phase& one = config_.phases(static_cast<int>(phase));
  const google::protobuf::FieldDescriptor* kind = one.GetReflection()->GetOneofFieldDescriptor(
      one, one.GetDescriptor()->FindOneofByName("kind"));
  return kind == nullptr ? "unknown" : kind->name();
}

std::string RunProgress::PhaseText() const {
  return absl::StrCat("phase ", now_.phase() + 1, " (", PhaseName(), ")");
}

std::optional<LogLine> RunProgress::OpenRound(const RoundPlan& plan, const RoundSpec& spec) {
  const bool begins = !phase_told_ || now_.phase() != plan.record.phase();
  phase_told_ = true;
  absent_told_ = false;
  round_times_ = IdleTime();
  now_.set_phase(plan.record.phase());
  now_.set_round(spec.round);
  now_.set_round_in_phase(plan.record.round_in_phase());
  now_.set_rounds_in_phase(plan.rounds_in_phase);
  now_.set_sampled(static_cast<uint32_t>(spec.cohort.size()) - spec.evaluators);
  if (!begins) return std::nullopt;
  LogLine line;
  line.what = "phase";
  line.text =
      absl::StrCat(now_.phase() + 1, " of ", config_.phases_size(), " begins: ", PhaseName());
  line.round = spec.round;
  return line;
}

std::optional<LogLine> RunProgress::NoteAbsent(const Round& round, const Membership& members,
                                               absl::Time now) {
  if (absent_told_ || now < round.spec().opened + round.spec().return_time) return std::nullopt;
  absent_told_ = true;
  const std::vector<ClientIndex> absent = round.Absent();
  if (absent.empty()) return std::nullopt;
  LogLine line;
  line.level = LogLine::Level::kWarning;
  line.what = "waiting";
  line.text = absl::StrCat("the round needs more reports, and the processes of ", absent.size(),
                           " of its clients are gone: ", members.NamesOf(absent),
                           "; start them again, or lower cohort.minimum_reports");
  line.round = round.spec().round;
  return line;
}

LogLine RunProgress::EndText(const absl::Status& outcome, uint64_t rounds,
                             absl::string_view directory) const {
  LogLine line;
  line.what = outcome.ok() ? "done" : absl::IsCancelled(outcome) ? "stopped" : "failed";
  line.level =
      outcome.ok() || absl::IsCancelled(outcome) ? LogLine::Level::kInfo : LogLine::Level::kError;
  line.text = outcome.ok()
                  ? absl::StrCat("all ", config_.phases_size(), " phases are complete after ",
                                 rounds, " rounds; see `leeway show ", directory, "`")
                  : std::string(outcome.message());
  const double idle = run_times_.share();
  if (outcome.ok() && idle > 0) absl::StrAppendFormat(&line.text, "; idle share %.3f", idle);
  line.round = rounds;
  return line;
}

v1::Progress RunProgress::Now(const Round& round, const Roster& roster) const {
  v1::Progress now = now_;
  if (round.open()) now.set_reports(round.reports());
  if (roster.epoch() == 0) return now;
  now.set_epoch(roster.epoch());
  now.set_population(roster.population());
  now.set_waiting(roster.waiting());
  return now;
}

}  // namespace leeway
