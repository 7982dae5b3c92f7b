// Feed: a run as its watchers see it, kept up to date from its store and, while a
// server is at work, from what only the server knows. One thread of its own reads
// when told that something changed, at most ten times a second; any number of
// watchers wait for what is new to them. Thread-safe.
#ifndef LEEWAY_DASHBOARD_FEED_H_
#define LEEWAY_DASHBOARD_FEED_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/mutex.h"
#include "proto/federation.pb.h"
#include "records/presence.h"
#include "records/show.h"
#include "records/store.h"
#include "records/verdict.h"

namespace leeway {

// More clients than a page shows one by one.
inline constexpr size_t kMostClientsShown = 1000;

// What only a living server knows.
struct LiveStatus {
  v1::Progress progress;
  std::vector<ClientPresence> clients;
};

// How far a watcher has read. Written as an event's id, so that a browser that lost
// its connection, or its server, goes on where it was.
struct Cursor {
  std::string run_id;
  uint64_t round = 0;
  uint64_t event = 0;
  uint64_t version = 0;  // of the feed; only while the connection lasts

  std::string Id() const;
  // Anything that is not an id is the beginning.
  static Cursor Parse(const std::string& id);
};

class Feed {
 public:
  struct Options {
    std::string directory;
    // The run's config, before the store has one. Optional.
    v1::RunConfig config;
    // Null for a run without a server in this process.
    std::function<LiveStatus()> live;
  };
  explicit Feed(Options options);
  ~Feed();
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  // There may be something new. Never blocks.
  void Changed();
  // Reads what is there now, before the first watcher comes. NotFound if there is
  // neither a run nor a server for one.
  absl::Status Refresh();
  // Nothing more will come: watchers get what is left, then nothing.
  void Close();

  // Waits until there is news after the cursor, or for `limit`; moves the cursor.
  // Null: no news in this time. JSON, on one line.
  std::optional<std::string> Next(Cursor& cursor, absl::Duration limit);
  // Nothing will come after this cursor: this server stops.
  bool Ended(const Cursor& cursor) const;
  // The run is done or failed: no other server will go on with it.
  bool Over() const;

  // The JSON of `leeway show --json`.
  std::string Json() const;
  // The run as it was read last.
  RunSummary Summary() const;

 private:
  struct Client {
    std::string id;
    uint64_t examples = 0;
    bool connected = false;
    bool present = true;    // in this epoch
    double away_since = 0;  // seconds since 1970; 0: it is connected, or nobody knows
    bool quarantined = false;
    uint64_t last_report = 0;  // round
    uint64_t refusals = 0;
    std::string reason;    // of the last refusal, or why it is away
    uint64_t version = 0;  // of the feed, when it changed last
  };

  static std::string StateOf(const Client& client);
  size_t EpochsRead() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return run_.epochs.size();
  }
  void Follow();
  absl::Status OpenStore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(reading_mu_);
  absl::Status ReadStore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(reading_mu_);
  void Count(const v1::Event& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What the event of its process's departure says.
  std::string DepartureOf(const Client& client) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Client& Named(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Touch(Client& client) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { client.version = version_ + 1; }
  std::string News(const Cursor& since) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  nlohmann::ordered_json EventsJson(uint64_t since) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  nlohmann::ordered_json ClientsJson(uint64_t since) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  double SecondsLeft() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;

  Mutex reading_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  std::unique_ptr<Store> store_ ABSL_GUARDED_BY(reading_mu_);

  mutable Mutex mu_;
  RunSummary run_ ABSL_GUARDED_BY(mu_);
  v1::Progress progress_ ABSL_GUARDED_BY(mu_);
  absl::StatusOr<Verdict> verdict_ ABSL_GUARDED_BY(mu_);  // or why there is none
  std::vector<Client> clients_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, size_t> index_ ABSL_GUARDED_BY(mu_);
  uint64_t version_ ABSL_GUARDED_BY(mu_) = 0;
  bool changed_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;  // last: uses all of the above
};

}  // namespace leeway

#endif  // LEEWAY_DASHBOARD_FEED_H_
