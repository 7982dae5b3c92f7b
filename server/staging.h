// Staging: memory for uploads that are not complete yet. Three buffers, or two where
// three would take more than 256 MB, bound the server's memory by model size, not by
// number of clients; an upload that finds none free waits its turn without having
// been read. One buffer fills while another is folded; a third gains a few percent.
// Thread-safe.
#ifndef LEEWAY_SERVER_STAGING_H_
#define LEEWAY_SERVER_STAGING_H_

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "common/wire.h"

namespace leeway {

class Staging {
 public:
  // A buffer for `bytes`, or null after having put `granted` in the queue: it will be given
  // the next free one, from the thread that returns it. Whoever gets a buffer
  // must return it.
  using Granted = std::function<void(std::unique_ptr<Buffer>)>;
  std::unique_ptr<Buffer> Take(size_t bytes, Granted granted) {
    MutexLock lock(&mu_);
    if (taken_ >= (3 * bytes > kThreeAtMost ? 2 : 3)) {
      waiting_.push_back(std::move(granted));
      return nullptr;
    }
    ++taken_;
    if (kept_.empty()) return std::make_unique<Buffer>();
    std::unique_ptr<Buffer> buffer = std::move(kept_.back());
    kept_.pop_back();
    return buffer;
  }

  void Return(std::unique_ptr<Buffer> buffer) {
    Granted granted;
    {
      MutexLock lock(&mu_);
      if (waiting_.empty()) {
        kept_.push_back(std::move(buffer));
        --taken_;
        return;
      }
      granted = std::move(waiting_.front());
      waiting_.pop_front();
    }
    granted(std::move(buffer));
  }

 private:
  static constexpr size_t kThreeAtMost = size_t{256} << 20;

  Mutex mu_;
  int taken_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::unique_ptr<Buffer>> kept_ ABSL_GUARDED_BY(mu_);
  std::deque<Granted> waiting_ ABSL_GUARDED_BY(mu_);
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_STAGING_H_
