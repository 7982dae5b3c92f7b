// Observers: those who watch a run, and what they are told. The latest records and events
// are kept in memory, one copy for all; who is further behind is given what the store has.
// Either way a piece at a time, so that memory grows neither with the length of the run
// nor with how slowly somebody reads.
// Thread-safe.
#ifndef LEEWAY_SERVER_OBSERVERS_H_
#define LEEWAY_SERVER_OBSERVERS_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "proto/federation.pb.h"
#include "proto/record.pb.h"
#include "records/store.h"

namespace leeway {

class Observers {
 public:
  // Of records, and of events, in one piece. One that is larger comes alone.
  static constexpr size_t kPieceBytes = size_t{64} << 10;
  // Of records, and of events, kept in memory.
  static constexpr size_t kRecentBytes = size_t{1} << 20;
  // Each holds a piece or two: 64 MB of them at most.
  static constexpr size_t kMostObservers = 256;

  // The next piece of what is new to somebody.
  struct Piece {
    v1::Observation news;  // rounds and events
    bool last = true;      // nothing is left; else ask again
  };

  Observers() = default;
  // The last observer may still be on its way out.
  ~Observers() { MutexLock lock(&subscribers_mu_); }
  Observers(const Observers&) = delete;
  Observers& operator=(const Observers&) = delete;

  // What is older than memory reaches is read from here. It holds these rounds and events
  // now; later ones will be added.
  void SetStore(std::unique_ptr<Store> store, uint64_t rounds, uint64_t events);

  // A round that no crash of the server can take back any more; an event.
  void AddRound(v1::RoundRecord record);
  void AddEvent(const v1::Event& event);
  absl::StatusOr<Piece> NewsAfter(uint64_t round, uint64_t event) const;

  // Calls `changed` whenever there is news: from any thread; it must neither block nor
  // (un)subscribe. Returns a function that ends this. ResourceExhausted if too many watch.
  absl::StatusOr<std::function<void()>> Subscribe(std::function<void()> changed);
  // There is news.
  void Notify() ABSL_LOCKS_EXCLUDED(subscribers_mu_);
  // There is news that need not be told each time: a report has come.
  void NotifyNowAndThen() ABSL_LOCKS_EXCLUDED(subscribers_mu_);

 private:
  // The end of a list whose entries are numbered without gaps.
  template <typename Entry>
  class RecentLog {
   public:
    void Add(Entry entry, uint64_t number);
    // Entries up to this number are elsewhere.
    void StartAfter(uint64_t number) { dropped_ = std::max(dropped_, number); }
    // Nothing that comes after `number` has been dropped.
    bool Reaches(uint64_t number) const { return number >= dropped_; }
    // Entries after `number`, a piece of them; true if those are all.
    bool Copy(uint64_t number, google::protobuf::RepeatedPtrField<Entry>& out) const;

   private:
    struct Numbered {
      uint64_t number;
      size_t bytes;
      Entry entry;
    };
    std::deque<Numbered> entries_;
    size_t bytes_ = 0;
    uint64_t dropped_ = 0;  // the number of the last entry that was dropped
  };

  absl::Status ReadStore(uint64_t round, uint64_t event, Piece& piece) const;

  mutable Mutex mu_;
  RecentLog<v1::RoundRecord> rounds_ ABSL_GUARDED_BY(mu_);
  RecentLog<v1::Event> events_ ABSL_GUARDED_BY(mu_);

  mutable Mutex store_mu_;
  std::unique_ptr<Store> store_ ABSL_GUARDED_BY(store_mu_);

  Mutex subscribers_mu_;
  uint64_t last_subscriber_ ABSL_GUARDED_BY(subscribers_mu_) = 0;
  std::map<uint64_t, std::function<void()>> subscribers_ ABSL_GUARDED_BY(subscribers_mu_);
  std::atomic<int64_t> notified_ = 0;  // by NotifyNowAndThen, in nanoseconds
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_OBSERVERS_H_
