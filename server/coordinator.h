// Coordinator: who is in the run and how the open round stands. Pure: no clock,
// threads, files, protobuf or gRPC; time and events are arguments, so that whole
// fault histories can be simulated in one test process. Not thread-safe.
//
// A run first gathers its roster, then opens one round after the other:
//
//   gathering --Freeze--> idle --OpenRound--> collecting --CloseRound--> idle ...
//
// A client of the open round is
//   waiting --BeginReport--> folding --EndReport(true)--> reported
//                                    --EndReport(false)-> waiting
//   waiting --Fail--> failed
//   waiting --Replace--> replaced (its process was gone too long)
#ifndef LEEWAY_SERVER_COORDINATOR_H_
#define LEEWAY_SERVER_COORDINATOR_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/tally.h"

namespace leeway {

using SessionId = uint64_t;    // one Join stream; 0 is none
using ClientIndex = uint32_t;  // position in the frozen roster

struct Enrolment {
  std::string id;
  uint64_t examples = 0;  // for training; none: it only evaluates
  uint64_t test_examples = 0;

  // Holds a central test set: no part of the population that clients are drawn from.
  bool evaluator() const { return examples == 0; }
};

// Work of the open round for one session: positions in its Join request and, for
// each, the group its report belongs to.
struct Assignment {
  SessionId session = 0;
  std::vector<uint32_t> clients;
  std::vector<uint32_t> groups;
};

struct RoundSpec {
  uint64_t round = 0;
  uint32_t attempt = 1;
  std::vector<ClientIndex> cohort;  // distinct
  std::vector<uint32_t> groups;     // group of each member; empty: all 0
  uint32_t evaluators = 0;          // how many of the cohort, at its end, are evaluators
  uint32_t minimum = 0;             // clients' reports that make the round count
  uint32_t enough = 0;              // reports that end it before all have come; 0: all
  absl::Time opened = absl::InfinitePast();
  absl::Time deadline = absl::InfiniteFuture();
  // A waiting member whose process has been gone this long gives its place to the
  // next of the reserves that is connected.
  absl::Duration replace_after = absl::InfiniteDuration();
  std::vector<ClientIndex> reserves;  // distinct, none of the cohort
};

class Coordinator {
 public:
  enum class RoundState { kCollecting, kComplete, kShort };
  enum class ReportState { kFold, kReplay };

  // Waits for `expected` clients. With a roster from an earlier process the run
  // is frozen from the start.
  explicit Coordinator(uint32_t expected) : expected_(expected) {}
  Coordinator(std::vector<Enrolment> roster);

  // ---- membership
  // A process with these clients has connected. Refuses a client that another
  // living process hosts, one that is not on the frozen roster, or one whose
  // data changed. `instance` tells a reconnecting process from a second one: the
  // same instance takes its clients over from its old session.
  absl::Status Join(SessionId session, uint64_t instance, std::vector<Enrolment> clients);
  // The process is gone; its clients keep their place in the open round, until
  // they are replaced.
  void Leave(SessionId session, absl::Time now);
  uint32_t joined() const { return joined_; }
  uint32_t expected() const { return expected_; }
  bool ready() const { return frozen_ || joined_ >= expected_; }
  // Fixes the roster: clients sorted by name, so that indices do not depend on the
  // order of arrival, and after them the evaluators.
  void Freeze();
  const std::vector<Enrolment>& roster() const { return roster_; }
  // Number of clients on the roster: their indices are 0 .. population()-1.
  uint32_t population() const { return population_; }
  // A roster client's process is connected.
  bool connected(ClientIndex client) const { return places_[client].session != 0; }
  // Roster clients that are not connected and, as far as we know, were after `since`.
  std::vector<std::string> GoneAfter(absl::Time since) const;
  // Clients that have joined so far; before Freeze, in no order.
  std::vector<Enrolment> gathered() const;
  // Takes a client of the roster out of all rounds to come. False if it was out.
  bool Quarantine(const std::string& client);
  // Roster clients that may be sampled, in order.
  const std::vector<ClientIndex>& eligible() const { return eligible_; }

  // ---- the open round
  // Opens a round; returns the work of every connected session.
  std::vector<Assignment> OpenRound(RoundSpec spec);
  // What a session that (re)joined still has to do in the open round.
  Assignment WorkFor(SessionId session) const;
  // That is the newest round, and the process (one Join stream) that hosts this client
  // has nothing left to do in it. False also where finding out would take long.
  bool IsIdle(uint64_t round, uint32_t attempt, const std::string& client) const;
  // OK if that is the open round; else an error that says whether it is over or
  // not open yet.
  absl::Status CheckOpen(uint64_t round, uint32_t attempt) const;
  // What a report for these clients would be. kFold: it is awaited. kReplay: it was
  // counted before. Errors: not sampled, stale round, future round, past the deadline,
  // a client named twice, other bytes under the same key, enough reports already.
  absl::StatusOr<ReportState> CheckReport(uint64_t round, uint32_t attempt,
                                          absl::Span<const std::string> clients, uint64_t digest,
                                          absl::Time now) const;
  // A complete upload for these clients has arrived, and CheckReport's answer stands.
  // After kFold add it, then call EndReport.
  absl::StatusOr<ReportState> BeginReport(uint64_t round, uint32_t attempt,
                                          absl::Span<const std::string> clients, uint64_t digest,
                                          absl::Time now);
  // Of these members, by group, what they count: their examples, or 1 each.
  std::vector<GroupShare> SharesOf(absl::Span<const std::string> clients, bool by_examples,
                                   size_t groups) const;
  void EndReport(absl::Span<const std::string> clients, bool counted);
  // A waiting member cannot do its task, or what it sent was refused for good: it
  // loses its place in this round. False if it was not waiting for its report.
  bool Fail(const std::string& client);
  // Replaces members whose process has been gone too long; returns the work of
  // those who take their places.
  std::vector<Assignment> Replace(absl::Time now);
  // When State or Replace will have something new to say if nothing else happens.
  absl::Time NextChange() const;
  // Decided when all have reported or failed, when enough have reported, or at the
  // deadline: complete with at least the minimum of reports, else short.
  // Collecting while reports are being folded.
  RoundState State(absl::Time now) const;
  // Ends the round; returns the members that reported, by index, in order.
  std::vector<ClientIndex> CloseRound();
  bool round_open() const { return open_; }
  const RoundSpec& spec() const { return spec_; }
  // Clients, without evaluators, whose reports are counted.
  uint32_t reports() const { return reports_ - evaluations_; }
  uint32_t replaced() const { return replaced_; }

 private:
  enum class MemberState : uint8_t { kWaiting, kFolding, kReported, kFailed, kReplaced };
  struct Member {
    MemberState state = MemberState::kWaiting;
    uint32_t group = 0;
    uint64_t digest = 0;
  };
  struct Place {  // where a roster client is hosted now
    SessionId session = 0;
    uint32_t position = 0;
    // Without a session: since when. A server that restarts does not know, and
    // counts from the first round that it opens.
    absl::Time gone_since = absl::InfiniteFuture();
  };
  struct Session {
    uint64_t instance = 0;
    std::vector<Enrolment> clients;
    std::vector<ClientIndex> indices;  // after Freeze
  };

  absl::Status CheckMember(SessionId session, uint64_t instance, const Enrolment& client) const;
  void Seat(SessionId id, Session& session);
  void IndexRoster();
  // Waits for a report, and its process is gone.
  bool IsAbsent(ClientIndex index) const;
  void AddWork(ClientIndex index, uint32_t group, std::map<SessionId, Assignment>& work) const;

  uint32_t expected_ = 0;
  uint32_t joined_ = 0;  // distinct clients hosted now, without evaluators
  bool frozen_ = false;
  std::vector<Enrolment> roster_;
  std::vector<Place> places_;          // by roster index
  uint32_t population_ = 0;            // without evaluators
  std::vector<ClientIndex> eligible_;  // not in quarantine, in order
  absl::flat_hash_map<std::string, ClientIndex> index_;
  absl::flat_hash_map<std::string, SessionId> holder_;  // while gathering
  std::map<SessionId, Session> sessions_;

  bool open_ = false;
  RoundSpec spec_;
  absl::flat_hash_map<ClientIndex, Member> members_;
  uint32_t reports_ = 0;
  uint32_t evaluations_ = 0;  // those of them that are evaluators'
  uint32_t folding_ = 0;
  uint32_t failed_ = 0;  // and replaced
  uint32_t replaced_ = 0;
  size_t next_reserve_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_COORDINATOR_H_
