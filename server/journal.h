// Journal: what of a run is durable. It opens the run's directory, commits rounds with all
// that a restarted server needs, keeps the log of events, and tells observers of a round
// once no crash of the server can take it back.
// Events may be added from any thread; all else is for the thread of the round loop.
#ifndef LEEWAY_SERVER_JOURNAL_H_
#define LEEWAY_SERVER_JOURNAL_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/mutex.h"
#include "common/rate_limit.h"
#include "proto/record.pb.h"
#include "proto/run.pb.h"
#include "records/events.h"
#include "records/meter.h"
#include "records/store.h"
#include "server/observers.h"

namespace leeway {

class Journal {
 public:
  struct Options {
    v1::RunConfig config;
    std::string directory;
    Log* log = nullptr;          // gets a line for every event; optional
    Meter* meter = nullptr;      // optional
    std::string chain_key = "";  // of the seal of the run's records; empty: none
  };
  // Where an earlier process stopped.
  struct SavedRun {
    v1::DataSchema schema;
    std::vector<StoredClient> roster;
    std::vector<v1::Epoch> epochs;
    v1::Standings standings;
    v1::ScriptState script;
    v1::RunState state = v1::RUN_STATE_UNSPECIFIED;
    std::string message;
  };

  // Opens the directory, or makes it. FailedPrecondition, with the field and both values, if it
  // holds a run with another configuration; what MayChange in it (records/same_run.h) may
  // differ, is then that of the run from now on, and is told as an event. The observers, and what
  // the options point to, outlive the journal.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(Options options, Observers* observers);

  const std::string& run_id() const { return run_id_; }
  // The last round that counts.
  uint64_t committed() const { return committed_; }
  // Why writing failed: the run is not to blame for it, and can be resumed.
  const absl::Status& disk() const { return disk_; }

  // ---- the run
  // Null if it has not begun.
  absl::StatusOr<std::optional<SavedRun>> Load();
  absl::StatusOr<std::string> LoadModel(const std::string& sha256) const {
    return store_->LoadModel(sha256);
  }
  // The clients whose reports counted in a round.
  absl::StatusOr<std::vector<uint32_t>> Accepted(uint64_t round) const;
  // The training rounds from this one on, and the clients whose reports counted in them.
  absl::StatusOr<std::map<uint64_t, std::vector<uint32_t>>> AcceptedSince(uint64_t round) const;
  absl::Status Begin(const v1::DataSchema& schema, const std::vector<StoredClient>& roster,
                     const ModelPtr& initial, v1::ScriptState script);
  // Who is present has changed: durable, as a round is, when this returns.
  absl::Status AddEpoch(const v1::Epoch& epoch, const std::vector<StoredClient>& entered);
  // The round counts from now on. It is written before this returns or, with durability
  // RELAXED, by the next CatchUp.
  absl::Status Commit(RoundCommit round);
  // Does what can wait until the next orders have left: writes a round that is not written
  // yet and, every 50 ms, ends the batch and notifies observers. Returns when it wants to be
  // called again.
  absl::StatusOr<absl::Time> CatchUp(absl::Time now);
  // Nothing is left to be written.
  absl::Status Flush();
  // A run that had failed, for this reason, goes on with the round that it failed in.
  absl::Status GoOn(const std::string& failure);
  // The run is over.
  absl::Status Finish(v1::RunState state, absl::string_view message, const ModelPtr& final_model);

  // ---- its events
  void AddEvent(EventKind kind, std::string subject, std::string text) ABSL_LOCKS_EXCLUDED(mu_);
  // A process asked to take part and was not let in.
  void AddRefusedJoin(const std::string& subject, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  // Something for the log alone.
  void LogOnly(LogLine line) const;
  // The same as AddEvent for a process that came or went: only so often, because one that does so
  // without end must not fill the disk.
  void AddPresence(EventKind kind, std::string subject, std::string text) ABSL_LOCKS_EXCLUDED(mu_);
  // Observers have not been notified of an event.
  bool has_news() const { return news_; }

 private:
  Journal(Options options, Observers* observers)
      : options_(std::move(options)), observers_(*observers) {}
  absl::Status ShowObservers(uint64_t rounds, uint64_t events);
  absl::Status WriteRound();
  void HandOverEvents() ABSL_LOCKS_EXCLUDED(mu_);
  void AddLocked(EventKind kind, std::string subject, std::string text)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Constant after Open.
  const Options options_;
  Observers& observers_;
  std::string run_id_;
  std::string changes_;  // of the configuration, since the run was here last

  // Touched by the thread of the round loop only.
  std::unique_ptr<Store> store_;
  absl::Status disk_;
  std::optional<RoundCommit> unwritten_;
  std::vector<v1::RoundRecord> unflushed_;  // written, in a batch that has not ended
  bool round_news_ = false;                 // observers have not been notified of a round
  absl::Time notified_ = absl::InfinitePast();

  std::atomic<uint64_t> committed_ = 0;
  std::atomic<bool> news_ = false;
  mutable Mutex mu_;
  std::vector<v1::Event> new_events_ ABSL_GUARDED_BY(mu_);  // not with the store yet
  uint64_t last_event_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t presences_ ABSL_GUARDED_BY(mu_) = 0;
  RateLimit limit_ ABSL_GUARDED_BY(mu_){20, absl::Minutes(1)};  // of events of one cause
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_JOURNAL_H_
