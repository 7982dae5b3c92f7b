// RunProgress: where a run stands, as those who watch are told, and what its log says once of
// each phase and round. Pure. Not thread-safe.
#ifndef LEEWAY_SERVER_RUN_PROGRESS_H_
#define LEEWAY_SERVER_RUN_PROGRESS_H_

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "proto/federation.pb.h"
#include "proto/record.pb.h"
#include "proto/run.pb.h"
#include "server/idle_time.h"
#include "server/membership.h"
#include "server/phase.h"
#include "server/round.h"

namespace leeway {

class RunProgress {
 public:
  // The config outlives this.
  explicit RunProgress(const v1::RunConfig& config) : config_(config) {
    now_.set_state(v1::GATHERING);
    now_.set_expected(config.cohort().clients());
  }

  // Where an earlier process stopped.
  void Restore(const Journal::SavedRun& saved, uint32_t expected, uint64_t round) {
    SetState(saved.state, saved.message);
    now_.set_expected(expected);
    now_.set_round(round);
  }
  void SetState(v1::RunState state, absl::string_view message = "") {
    now_.set_state(state);
    now_.set_message(std::string(message));
  }
  v1::RunState state() const { return now_.state(); }
  const std::string& message() const { return now_.message(); }
  bool over() const { return state() == v1::DONE || state() == v1::FAILED; }
  void SetJoined(uint32_t joined) { now_.set_joined(joined); }

  // A round opens. Returns what the log says if it begins a phase, or is the first of this process.
  std::optional<LogLine> OpenRound(const RoundPlan& plan, const RoundSpec& spec);
  // What a report of the open round says of its process's time.
  void AddTimes(const v1::ReportHeader& header) { round_times_.Add(header); }
  // The open round counts. Returns its idle share.
  double CloseRound() {
    run_times_.Add(round_times_);
    return round_times_.share();
  }
  // "phase 2 (fixed_point)": the one under way.
  std::string PhaseText() const;
  // What the log says, once in a round, if it needs clients that have been gone for longer than it
  // takes to come back.
  std::optional<LogLine> NoteAbsent(const Round& round, const Membership& members, absl::Time now);
  // What the log says at the end of the run, after so many rounds.
  LogLine EndText(const absl::Status& outcome, uint64_t rounds, absl::string_view directory) const;

  v1::Progress Now(const Round& round, const Roster& roster) const;

 private:
  std::string PhaseName() const;  // "train", "fixed_point", ...: as in a config

  const v1::RunConfig& config_;
  v1::Progress now_;
  bool phase_told_ = false;
  bool absent_told_ = false;  // in the open round
  IdleTime round_times_;      // of the open round
  IdleTime run_times_;        // of those that this process has committed
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_RUN_PROGRESS_H_
