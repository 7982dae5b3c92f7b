// Attempts: the attempts at the round that is to be done next. How many there were, who failed in
// them, whom the next one does without, and who is quarantined for it.
// Pure: time and events are arguments. Not thread-safe.
#ifndef LEEWAY_SERVER_ATTEMPTS_H_
#define LEEWAY_SERVER_ATTEMPTS_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/run.pb.h"
#include "server/roster.h"
#include "server/round.h"

namespace leeway {

class Attempts {
 public:
  // What a client's failure in a round says about it.
  enum class Fault {
    kOwn,     // it failed at its task, or its report was refused
    kShared,  // a sum of several clients was refused: it is not known whose fault that is
  };
  struct Quarantined {
    std::string client;
    std::string why;
  };

  explicit Attempts(const v1::RunConfig& config)
      : most_(config.cohort().attempts()), quarantine_after_(config.limits().quarantine_after()) {}

  // The next one begins.
  void Begin(absl::Time now);
  uint32_t number() const { return number_; }  // of the one under way, from 1
  // The number that its cohort is drawn by: a round that is repeated keeps its cohort.
  uint32_t drawn_by() const { return number_ - repeats_; }
  // After this one there may be another.
  bool has_next() const { return drawn_by() < most_; }
  // When the first began.
  absl::Time began() const { return began_; }

  // A client's report cannot count in the attempt under way.
  void AddFailure(std::string client, std::string why, Fault fault);
  // At the end of an attempt: counts the failures in the roster, and returns who is quarantined
  // for them. Whose fault it may be, further attempts do without.
  std::vector<Quarantined> Judge(const Round& round, Roster& roster);
  const std::set<ClientIndex>& set_aside() const { return set_aside_; }
  // "client 'a': why", of the last failure in any attempt at this round; empty: there was none.
  const std::string& last_failure() const { return last_failure_; }
  // The same of the last who was quarantined, in any round.
  const std::string& last_quarantine() const { return last_quarantine_; }

  // The attempt was complete, but its sums have shown that it must be taken once more.
  void Repeat() { ++repeats_; }
  bool may_repeat() const;
  // The round counts: the next begins with its first attempt.
  void EndRound();

 private:
  struct Failure {
    std::string client;
    std::string why;
    Fault fault;
  };

  const uint32_t most_;              // cohort.attempts
  const uint32_t quarantine_after_;  // limits.quarantine_after
  uint32_t number_ = 0;
  uint32_t repeats_ = 0;
  absl::Time began_;
  std::vector<Failure> failures_;  // in the attempt under way
  std::set<ClientIndex> set_aside_;
  std::string last_failure_;
  std::string last_quarantine_;
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_ATTEMPTS_H_
