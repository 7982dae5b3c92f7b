// Roster: who is in the federation, which process hosts whom, and who may be drawn.
// Pure: no clock, threads, files, protobuf or gRPC; time and events are arguments, so that
// whole fault histories can be simulated in one test process. Not thread-safe.
//
// Clients come, leave and return at any time. Who is present is an epoch; a new one begins only
// when BeginEpoch is called, between two rounds:
//   connected, no index --BeginEpoch--> present <--BeginEpoch--> left
// A client's index is its name in all records. It gets one in the first epoch that it is
// present in, and keeps it.
#ifndef LEEWAY_SERVER_ROSTER_H_
#define LEEWAY_SERVER_ROSTER_H_

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace leeway {

using SessionId = uint64_t;    // one Join stream; 0 is none
using ClientIndex = uint32_t;  // position in the roster
inline constexpr ClientIndex kNoIndex = std::numeric_limits<ClientIndex>::max();

struct Enrolment {
  std::string id;
  uint64_t examples = 0;  // for training; none: it only evaluates
  uint64_t test_examples = 0;
  uint64_t digest = 0;  // of its data; 0: not known

  // Holds a central test set: no part of the population that clients are drawn from.
  bool evaluator() const { return examples == 0; }
};

// What is known of a client's reports. A restarted server needs it.
struct Standing {
  ClientIndex client = 0;
  uint32_t refused = 0;      // tasks failed or reports refused for good, in a row
  bool quarantined = false;  // for the rest of the run
  bool operator==(const Standing&) const = default;
};

// How an epoch differs from the one before it.
struct EpochChange {
  std::vector<Enrolment> entered;  // new; they get the next indices in this order
  std::vector<ClientIndex> returned;
  std::vector<ClientIndex> left;
  bool empty() const { return entered.empty() && returned.empty() && left.empty(); }
};

// An epoch of another run, which is to be repeated.
struct PlannedEpoch {
  uint64_t first_round = 0;
  std::vector<std::string> entered;  // or returned
  std::vector<std::string> left;
};

class Roster {
 public:
  // Where a client is hosted now.
  struct Host {
    SessionId session = 0;                           // 0: nowhere
    uint32_t position = 0;                           // in its session's Join request
    absl::Time gone_since = absl::InfiniteFuture();  // without a session
  };

  // Waits for `expected` clients. A closed roster takes no new ones in after its first epoch.
  explicit Roster(uint32_t expected, bool closed = false) : expected_(expected), closed_(closed) {}
  // The roster of an earlier process, in the epoch of this number, with those in `away` not
  // present. When its clients left is not known: they are gone since `now`.
  Roster(std::vector<Enrolment> clients, absl::Time now, uint32_t epoch = 1,
         absl::Span<const ClientIndex> away = {}, bool closed = false);

  // A process with these clients has connected. Refuses a client that another
  // living process hosts, one whose data changed and, if the roster is closed, one that
  // comes late. `instance` tells a reconnecting process from a second one: the
  // same instance takes its clients over from its old session. `shape` is what the clients'
  // data look like, in the caller's own terms.
  absl::Status Join(SessionId session, uint64_t instance, std::vector<Enrolment> clients,
                    absl::Time now, std::string shape = "");
  // The process is gone; its clients keep their place in the open round, until
  // they are replaced.
  void Leave(SessionId session, absl::Time now);

  uint32_t joined() const { return joined_; }
  uint32_t expected() const { return expected_; }
  bool ready() const { return epoch_ > 0 || joined_ >= expected_; }
  // The shape that most of the connected clients have; of two that as many have, that of the
  // client whose name comes first.
  std::string CommonShape() const;
  // A session whose clients have another one, with the name of one of them.
  struct OddSession {
    SessionId session = 0;
    std::string shape;
    std::string client;
  };
  std::vector<OddSession> SessionsWithout(absl::string_view shape) const;

  // ---- epochs
  uint32_t epoch() const { return epoch_; }  // 0 while clients gather
  // What would change if an epoch began now: who is connected and not present enters or
  // returns, who has been away for `absent_after` leaves; but nobody leaves if fewer than
  // `fewest` clients (at least one) would stay. Newcomers are sorted by name, evaluators after
  // clients, so that indices do not depend on the order of arrival.
  EpochChange NextEpoch(absl::Time now, absl::Duration absent_after, uint32_t fewest) const;
  // The same as planned. Unavailable, with the name, while somebody who enters is not
  // connected.
  absl::StatusOr<EpochChange> FollowPlan(const PlannedEpoch& plan) const;
  // No round may be open.
  void BeginEpoch(const EpochChange& change);
  // Clients that are connected and not present.
  uint32_t waiting() const { return waiting_; }

  // Of all epochs so far. Empty before the first.
  const std::vector<Enrolment>& clients() const { return clients_; }
  bool present(ClientIndex client) const { return present_[client]; }
  // Clients present, without evaluators, and what they hold together.
  uint32_t population() const { return population_; }
  uint64_t examples() const { return examples_; }
  // Evaluators present, in order.
  std::vector<ClientIndex> Evaluators() const;
  std::optional<ClientIndex> Find(absl::string_view name) const;
  const Host& host(ClientIndex client) const { return hosts_[client]; }
  bool connected(ClientIndex client) const { return hosts_[client].session != 0; }
  // Clients of one process, in the order of its Join request; kNoIndex for those that were in
  // no epoch yet.
  absl::Span<const ClientIndex> HostedBy(SessionId session) const;
  // The same as they enrolled, with those that were in no epoch yet.
  absl::Span<const Enrolment> EnrolledBy(SessionId session) const;
  // Clients that are not connected and have gone after `since`.
  std::vector<std::string> GoneAfter(absl::Time since) const;
  // Clients that are connected and have no index, in no order.
  std::vector<Enrolment> Newcomers() const;

  // A client failed at its task, or its report was refused for good; returns how often in a row.
  uint32_t CountRefused(absl::string_view client);
  // A report of this client counted.
  void CountAccepted(ClientIndex client);
  // Takes a client out of all rounds to come. False if it was out, or is not a client.
  bool Quarantine(absl::string_view client);
  // Clients that may be drawn, in order: present and not in quarantine.
  const std::vector<ClientIndex>& eligible() const { return eligible_; }
  // These clients' reports counted in this round of those after which clients keep a state.
  void CountIn(uint64_t round, absl::Span<const ClientIndex> clients);
  // The last such round of a client; 0 if there is none.
  uint64_t last_counted(ClientIndex client) const {
    const auto found = last_counted_.find(client);
    return found == last_counted_.end() ? 0 : found->second;
  }
  // Of clients that there is something to say about, by index; and back.
  std::vector<Standing> standings() const;
  void Restore(absl::Span<const Standing> standings);

 private:
  struct Session {
    uint64_t instance = 0;
    std::vector<Enrolment> clients;
    std::vector<ClientIndex> indices;  // of `clients`
    std::string shape;
  };

  absl::Status CheckMember(SessionId session, uint64_t instance, const Enrolment& client) const;
  absl::Status CheckKnown(const Enrolment& client, const Enrolment& known) const;
  // Finds the session's clients that have an index.
  void SetHosts(SessionId id, Session& session);
  bool IsAway(ClientIndex client, absl::Time now, absl::Duration absent_after) const;
  void Count();  // who is present

  uint32_t expected_ = 0;
  bool closed_ = false;
  uint32_t epoch_ = 0;
  uint32_t joined_ = 0;     // distinct clients hosted now, without evaluators
  uint32_t waiting_ = 0;    // of all hosted now, those not present
  uint32_t connected_ = 0;  // those with an index
  // By index.
  std::vector<Enrolment> clients_;
  std::vector<Host> hosts_;
  std::vector<bool> present_;
  // Of this epoch.
  uint32_t population_ = 0;
  uint64_t examples_ = 0;
  std::vector<ClientIndex> eligible_;
  std::map<ClientIndex, Standing> standings_;
  absl::flat_hash_map<ClientIndex, uint64_t> last_counted_;
  absl::flat_hash_map<std::string, ClientIndex> index_;
  absl::flat_hash_map<std::string, SessionId> newcomers_;  // without an index
  std::map<SessionId, Session> sessions_;
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_ROSTER_H_
