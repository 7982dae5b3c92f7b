// Staging: memory for uploads that are not complete yet. Three buffers, or two where
// three would take more than 256 MB, bound the server's memory by model size, not by
// number of clients; an upload that finds none free waits its turn without having
// been read. One buffer fills while another is folded; a third gains a few percent.
// Each client has at most one upload here, its newest.
// Thread-safe. Calls uploads without holding its lock.
#ifndef LEEWAY_SERVER_STAGING_H_
#define LEEWAY_SERVER_STAGING_H_

#include <algorithm>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "common/mutex.h"
#include "common/wire.h"
#include "records/holdings.h"

namespace leeway {

class Staging {
 public:
  // Holds a buffer or waits for one, from Enter to Leave.
  class Upload {
   public:
    virtual ~Upload() = default;
    // Its turn has come, on the thread of whoever returned the buffer; gives it back
    // if it has no use for it any more.
    virtual std::unique_ptr<Buffer> OnGranted(std::unique_ptr<Buffer> buffer) = 0;
    // A client of this upload has begun another.
    virtual void OnSuperseded() = 0;
  };

  // What is allocated, and who waits, is counted in `holdings`, which must outlive this.
  explicit Staging(Holdings& holdings) : holdings_(holdings) {}

  // An upload for the header's clients begins. What they had under way before is at an end:
  // its connection broke, or they try for more than their share.
  void Enter(const v1::ReportHeader& header, const std::shared_ptr<Upload>& upload) {
    std::set<std::shared_ptr<Upload>> older;
    {
      MutexLock lock(&mu_);
      for (const std::string& client : header.clients()) {
        std::weak_ptr<Upload>& newest = newest_[client];
        older.insert(newest.lock());
        newest = upload;
      }
    }
    for (const std::shared_ptr<Upload>& one : older) {
      if (one && one != upload) one->OnSuperseded();
    }
  }

  // A buffer for `bytes`, or null: the upload is in the queue and will be granted one.
  // Whoever gets a buffer must return it.
  std::unique_ptr<Buffer> Take(size_t bytes, std::shared_ptr<Upload> upload) {
    MutexLock lock(&mu_);
    if (taken_ >= (3 * bytes > kThreeAtMost ? 2 : 3)) {
      waiting_.push_back(std::move(upload));
      holdings_.waiting.Add(0);
      return nullptr;
    }
    ++taken_;
    if (kept_.empty()) return std::make_unique<Buffer>(&holdings_.staging);
    std::unique_ptr<Buffer> buffer = std::move(kept_.back());
    kept_.pop_back();
    return buffer;
  }

  void Return(std::unique_ptr<Buffer> buffer) {
    while (buffer) {
      std::shared_ptr<Upload> next;
      {
        MutexLock lock(&mu_);
        if (waiting_.empty()) {
          kept_.push_back(std::move(buffer));
          --taken_;
          return;
        }
        next = std::move(waiting_.front());
        waiting_.pop_front();
        holdings_.waiting.Remove(0);
      }
      buffer = next->OnGranted(std::move(buffer));
    }
  }

  // The upload is over; it waits no more.
  void Leave(const v1::ReportHeader& header, const std::shared_ptr<Upload>& upload) {
    MutexLock lock(&mu_);
    const auto place = std::find(waiting_.begin(), waiting_.end(), upload);
    if (place != waiting_.end()) {
      waiting_.erase(place);
      holdings_.waiting.Remove(0);
    }
    for (const std::string& client : header.clients()) {
      const auto newest = newest_.find(client);
      if (newest != newest_.end() && newest->second.lock() == upload) newest_.erase(newest);
    }
  }

  // Somebody waits for a buffer.
  bool wanted() {
    MutexLock lock(&mu_);
    return !waiting_.empty();
  }

 private:
  static constexpr size_t kThreeAtMost = size_t{256} << 20;

  Holdings& holdings_;
  Mutex mu_;
  int taken_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::unique_ptr<Buffer>> kept_ ABSL_GUARDED_BY(mu_);
  std::deque<std::shared_ptr<Upload>> waiting_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, std::weak_ptr<Upload>> newest_ ABSL_GUARDED_BY(mu_);
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_STAGING_H_
