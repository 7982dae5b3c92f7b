// Membership: who takes part in a run. Its roster, what the clients' data look like, and the rule
// by which clients come and go (epochs): as they connect, or as another run's epochs say. Pure:
// time and events are arguments. Not thread-safe.
#ifndef LEEWAY_SERVER_MEMBERSHIP_H_
#define LEEWAY_SERVER_MEMBERSHIP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/model_layout.h"
#include "proto/federation.pb.h"
#include "proto/record.pb.h"
#include "proto/run.pb.h"
#include "records/epochs.h"
#include "records/presence.h"
#include "records/store.h"
#include "server/journal.h"
#include "server/roster.h"

namespace leeway {

class Membership {
 public:
  // What all clients' data look like, and so the model.
  struct Data {
    v1::DataSchema schema;
    ModelLayout layout;
  };
  // A process whose clients' data look different from those of the others.
  struct OddProcess {
    SessionId session = 0;
    std::string client;  // one of them
    absl::Status why;
  };
  // An epoch as it is stored and told of.
  struct Begun {
    v1::Epoch epoch;
    std::vector<StoredClient> entered;
    EpochNames names;
  };

  // The config and the plan outlive this. The plan holds another run's epochs, which this one
  // repeats; empty: clients enter when they come.
  Membership(const v1::RunConfig& config, const std::vector<PlannedEpoch>& plan);
  // Where an earlier process stopped.
  absl::Status Restore(const Journal::SavedRun& saved, absl::Time now);

  Roster& roster() { return roster_; }
  const Roster& roster() const { return roster_; }
  // Once the run has started.
  const std::optional<Data>& data() const { return data_; }

  // A process with these clients has connected. An error if they cannot take part.
  absl::Status Join(SessionId session, const v1::JoinRequest& request, absl::Time now);

  // The first epoch, if all are there for it. Unavailable: wait for more clients.
  absl::StatusOr<EpochChange> FirstEpoch(absl::Time now) const;
  // Decides what the run's data look like: as most clients'. Those who have others are returned,
  // and must leave; then nothing is decided.
  absl::StatusOr<std::vector<OddProcess>> AgreeOnData();
  // Who comes and goes before this round. Unavailable: somebody that the plan names has not
  // joined.
  absl::StatusOr<EpochChange> NextEpoch(uint64_t round, absl::Time now) const;
  Begun BeginEpoch(const EpochChange& change, uint64_t round);

  // From now on nobody enters before the next round, or somebody may again.
  void Hold(bool hold) { held_ = hold; }
  // How many clients of a session wait to enter, and for what; empty if none does. `phase` is
  // how people name the one under way.
  std::string WaitingText(SessionId session, absl::string_view phase) const;
  // Everybody on the roster and, after them, who waits to enter; at most `most`.
  std::vector<ClientPresence> Clients(size_t most) const;
  // "a, b and 3 more".
  std::string NamesOf(absl::Span<const ClientIndex> clients) const;

 private:
  // A model from a file says nothing of data: whether they fit is the worker's affair.
  bool any_data() const { return config_.model().has_file(); }
  absl::Status CheckData(const v1::JoinRequest& request) const;

  const v1::RunConfig& config_;
  const std::vector<PlannedEpoch>& plan_;
  Roster roster_;
  std::optional<Data> data_;
  bool held_ = false;
};

// "a, b and 3 more".
std::string FewNames(absl::Span<const std::string> names);

}  // namespace leeway

#endif  // LEEWAY_SERVER_MEMBERSHIP_H_
