// Round: one attempt at one round, from the moment its orders go out until its sums are
// had. It knows who was asked, admits each member's report once, has it added by an
// Aggregator, and decides when the round is over. Pure: no clock, threads, files or gRPC;
// time and events are arguments. The server and the fault simulation use this very class.
// Not thread-safe, but for the aggregator: between BeginReport and EndReport its Add is
// called without the round's lock.
//
// A round is
//   collecting --Close--> closed
// and a member of it
//   waiting --BeginReport--> adding --EndReport(true)--> reported
//                                   --EndReport(false)-> waiting
//   waiting --Fail--> failed
//   waiting --Replace--> replaced (its process was gone too long)
// A waiting member whose process has gone is waited for until the deadline or, once the round
// has its minimum of reports, until its time to come back has passed.
#ifndef LEEWAY_SERVER_ROUND_H_
#define LEEWAY_SERVER_ROUND_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/tally.h"
#include "server/aggregator.h"
#include "server/roster.h"

namespace leeway {

// Work of a round for one session: positions in its Join request and, for each, the
// group its report belongs to.
struct Assignment {
  SessionId session = 0;
  std::vector<uint32_t> clients;
  std::vector<uint32_t> groups;
  // For each, the round whose state it uses; empty if clients keep none.
  std::vector<uint64_t> state_rounds;
};

struct RoundSpec {
  uint64_t round = 0;
  uint32_t attempt = 1;
  std::vector<ClientIndex> cohort;  // distinct
  std::vector<uint32_t> groups;     // group of each member; empty: all 0
  uint32_t group_count = 1;
  uint32_t evaluators = 0;   // how many of the cohort, at its end, are evaluators
  bool by_examples = false;  // a client weighs as many as its examples; else 1
  uint32_t minimum = 0;      // clients' reports that make the round count
  uint32_t enough = 0;       // reports that end it before all have come; 0: all
  absl::Time opened = absl::InfinitePast();
  absl::Time deadline = absl::InfiniteFuture();
  // A waiting member whose process has been gone this long gives its place to the
  // next of the reserves that is connected.
  absl::Duration replace_after = absl::InfiniteDuration();
  std::vector<ClientIndex> reserves;  // distinct, none of the cohort
  // How long a member whose process has gone may take to come back if the round has its
  // minimum of reports without it.
  absl::Duration return_time = absl::InfiniteDuration();
  // Clients keep a state between rounds, which counts from this round on; 0: they do not.
  uint64_t states_since = 0;
};

// What tells one report from another.
struct ReportKey {
  uint64_t round = 0;
  uint32_t attempt = 0;
  std::vector<std::string> clients;
  uint64_t digest = 0;  // of all that it says
};

class Round {
 public:
  enum class State { kCollecting, kComplete, kShort };
  struct Admission {
    bool replay = false;             // it was counted before: nothing to add
    bool undecided = false;          // that depends on a report that is being added now
    std::vector<GroupShare> shares;  // for Aggregator::Add
  };
  struct Result {
    std::vector<ClientIndex> accepted;  // whose reports counted, in order, with evaluators
    std::vector<ClientIndex> missing;   // still waited for, in order, with evaluators
    uint32_t sampled = 0;               // the rest without evaluators
    uint32_t reports = 0;
    uint32_t replaced = 0;
    double largest_norm = 0;  // Aggregator::largest_norm
    Tally tally;
  };

  // Before the first round: round 0, closed.
  Round() = default;
  // The roster must outlive the round; no epoch may begin while it is open.
  Round(RoundSpec spec, const Roster* roster, std::unique_ptr<Aggregator> aggregator);

  // ---- who has work
  // Of every connected session.
  std::vector<Assignment> Work() const;
  // What a session that (re)joined still has to do.
  Assignment WorkFor(SessionId session) const;
  // Replaces members whose process has been gone too long; returns the work of those
  // who take their places.
  std::vector<Assignment> Replace(absl::Time now);
  // This is that round, and the process (one Join stream) that hosts this client has
  // nothing left to do in it. False also where finding out would take long.
  bool IsIdle(uint64_t round, uint32_t attempt, const std::string& client) const;

  // ---- reports
  // OK if this is that round and it is open; else an error that says whether that one
  // is over or not open yet.
  absl::Status CheckOpen(uint64_t round, uint32_t attempt) const;
  // Would the report be admitted? Errors: not sampled, stale round, future round, past the
  // deadline, a client named twice, other bytes under the same key, enough reports already.
  absl::StatusOr<Admission> CheckReport(const ReportKey& key, absl::Time now) const;
  // A complete report has arrived, and CheckReport's answer stands. A replay is at its end; one
  // that is undecided must be begun again after the next EndReport; any other goes to the
  // aggregator and then to EndReport.
  absl::StatusOr<Admission> BeginReport(const ReportKey& key, absl::Time now);
  // Returns whether a report was left undecided meanwhile.
  bool EndReport(const ReportKey& key, bool counted);
  Aggregator& aggregator() const { return *aggregator_; }
  // A waiting member cannot do its task, or what it sent was refused for good: it
  // loses its place in this round. False if it was not waiting for its report.
  bool Fail(const std::string& client);

  // ---- its end
  // Decided when all have reported or failed, when enough have reported, when the minimum
  // has reported and all others have been gone for longer than return_time, or at the
  // deadline: complete with at least the minimum of reports, else short. Collecting while
  // reports are being added, or the aggregator cannot close.
  State StateAt(absl::Time now) const;
  // When StateAt or Replace will have something new to say if nothing else happens.
  absl::Time NextChange() const;
  // Ends the round.
  Result Close();

  bool open() const { return open_; }
  const RoundSpec& spec() const { return spec_; }
  // Clients, without evaluators, whose reports are counted.
  uint32_t reports() const { return reports_ - evaluations_; }
  // Members that are waited for and whose processes are gone, in order, if the round cannot
  // end without some of them before its deadline; else none.
  std::vector<ClientIndex> Absent() const;
  // Members that could not do their task, or whose reports were refused for good.
  uint32_t failures() const { return failed_ - replaced_; }
  uint32_t replaced() const { return replaced_; }

 private:
  enum class MemberState : uint8_t { kWaiting, kAdding, kReported, kFailed, kReplaced };
  struct Member {
    MemberState state = MemberState::kWaiting;
    uint32_t group = 0;
    uint64_t digest = 0;
  };
  using Members = absl::flat_hash_map<ClientIndex, Member>;

  Members::const_iterator FindMember(const std::string& client) const;
  // May a report with this digest count for this member? One that was counted already may come
  // again.
  absl::Status CheckMember(const std::string& client, const Member& member, uint64_t digest) const;
  absl::Status CheckTime(absl::Time now) const;
  std::vector<GroupShare> SharesOf(const std::vector<std::string>& clients) const;
  // Waits for a report, and its process is gone.
  bool IsAbsent(ClientIndex index) const;
  absl::Time ReplacedAt(ClientIndex index) const;
  absl::Time GivenUpAt(ClientIndex index) const;
  bool HasMinimum() const;
  // Somebody is left whose report may still come.
  bool AwaitsAny(absl::Time now) const;
  void AddWork(ClientIndex index, uint32_t group, std::map<SessionId, Assignment>& work) const;
  void AddTo(Assignment& assignment, ClientIndex index, uint32_t position, uint32_t group) const;

  bool open_ = false;
  RoundSpec spec_;  // members that are replaced take a reserve into the cohort
  const Roster* roster_ = nullptr;
  std::unique_ptr<Aggregator> aggregator_;
  Members members_;
  uint32_t sampled_ = 0;
  uint32_t reports_ = 0;
  uint32_t evaluations_ = 0;  // those of them that are evaluators'
  uint32_t adding_ = 0;
  bool undecided_ = false;  // a report waits for the end of one that is being added
  uint32_t failed_ = 0;     // and replaced
  uint32_t replaced_ = 0;
  // Place in the cohort of the member that AwaitsAny found last: where it looks first, so
  // that a report does not cost a look at all members.
  mutable size_t awaited_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_ROUND_H_
