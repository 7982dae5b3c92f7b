// Roster: who is in the federation, which process hosts whom, and who may be drawn.
// Pure: no clock, threads, files, protobuf or gRPC; time and events are arguments, so that
// whole fault histories can be simulated in one test process. Not thread-safe.
//
//   gathering --Freeze--> frozen: from then on a client's index is its name in all records
#ifndef LEEWAY_SERVER_ROSTER_H_
#define LEEWAY_SERVER_ROSTER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

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

// What is known of a client's reports. A restarted server needs it.
struct Standing {
  ClientIndex client = 0;
  uint32_t refused = 0;      // tasks failed or reports refused for good, in a row
  bool quarantined = false;  // for the rest of the run
  bool operator==(const Standing&) const = default;
};

class Roster {
 public:
  // Where a client is hosted now.
  struct Host {
    SessionId session = 0;                           // 0: nowhere
    uint32_t position = 0;                           // in its session's Join request
    absl::Time gone_since = absl::InfiniteFuture();  // without a session
  };

  // Waits for `expected` clients.
  explicit Roster(uint32_t expected) : expected_(expected) {}
  // The roster of an earlier process, frozen. When its clients left is not known: they
  // are gone since `now`.
  Roster(std::vector<Enrolment> clients, absl::Time now);

  // A process with these clients has connected. Refuses a client that another
  // living process hosts, one that is not on the frozen roster, or one whose
  // data changed. `instance` tells a reconnecting process from a second one: the
  // same instance takes its clients over from its old session.
  absl::Status Join(SessionId session, uint64_t instance, std::vector<Enrolment> clients,
                    absl::Time now);
  // The process is gone; its clients keep their place in the open round, until
  // they are replaced.
  void Leave(SessionId session, absl::Time now);

  uint32_t joined() const { return joined_; }
  uint32_t expected() const { return expected_; }
  bool ready() const { return frozen_ || joined_ >= expected_; }
  // Fixes the roster: clients sorted by name, so that indices do not depend on the
  // order of arrival, and after them the evaluators.
  void Freeze();

  // Empty before Freeze.
  const std::vector<Enrolment>& clients() const { return clients_; }
  // Number of clients: their indices are 0 .. population()-1; evaluators come after.
  uint32_t population() const { return population_; }
  std::optional<ClientIndex> Find(absl::string_view name) const;
  const Host& host(ClientIndex client) const { return hosts_[client]; }
  bool connected(ClientIndex client) const { return hosts_[client].session != 0; }
  // Clients of one process, in the order of its Join request; none before Freeze.
  absl::Span<const ClientIndex> HostedBy(SessionId session) const;
  // Clients that are not connected and have gone after `since`.
  std::vector<std::string> GoneAfter(absl::Time since) const;
  // Clients that are connected; before Freeze, in no order.
  std::vector<Enrolment> gathered() const;

  // A client failed at its task, or its report was refused for good; returns how often in a row.
  uint32_t CountRefused(absl::string_view client);
  // A report of this client counted.
  void CountAccepted(ClientIndex client);
  // Takes a client out of all rounds to come. False if it was out, or is not a client.
  bool Quarantine(absl::string_view client);
  // Clients that may be drawn, in order.
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
    std::vector<ClientIndex> indices;  // after Freeze
  };

  absl::Status CheckMember(SessionId session, uint64_t instance, const Enrolment& client) const;
  void SetHosts(SessionId id, Session& session);
  void IndexClients(absl::Time gone_since);

  uint32_t expected_ = 0;
  uint32_t joined_ = 0;  // distinct clients hosted now, without evaluators
  bool frozen_ = false;
  std::vector<Enrolment> clients_;
  std::vector<Host> hosts_;            // by index
  uint32_t population_ = 0;            // without evaluators
  std::vector<ClientIndex> eligible_;  // not in quarantine, in order
  std::map<ClientIndex, Standing> standings_;
  absl::flat_hash_map<ClientIndex, uint64_t> last_counted_;
  absl::flat_hash_map<std::string, ClientIndex> index_;
  absl::flat_hash_map<std::string, SessionId> holder_;  // while gathering
  std::map<SessionId, Session> sessions_;
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_ROSTER_H_
