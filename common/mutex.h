// Mutex, MutexLock, CondVar: Abseil's. Under ThreadSanitizer the standard
// library's instead, because the sanitizer cannot see the locks of an Abseil that
// was built without it.
#ifndef LEEWAY_COMMON_MUTEX_H_
#define LEEWAY_COMMON_MUTEX_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

#if defined(__SANITIZE_THREAD__)

#include <sanitizer/tsan_interface.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace leeway {

class ABSL_LOCKABLE Mutex {
 public:
  // As Abseil's, by a look every millisecond.
  void Await(const absl::Condition& condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    AwaitWithTimeout(condition, absl::InfiniteDuration());
  }
  bool AwaitWithTimeout(const absl::Condition& condition, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    const absl::Time end = absl::Now() + timeout;
    while (!condition.Eval() && absl::Now() < end) {
      mu_.unlock();
      absl::SleepFor(absl::Milliseconds(1));
      mu_.lock();
    }
    return condition.Eval();
  }

 private:
  friend class MutexLock;
  friend class CondVar;
  std::mutex mu_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mu) ABSL_EXCLUSIVE_LOCK_FUNCTION(mu) : lock_(mu->mu_) {}
  ~MutexLock() ABSL_UNLOCK_FUNCTION() {}

 private:
  std::lock_guard<std::mutex> lock_;
};

class CondVar {
 public:
  void Wait(Mutex* mu) {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  void WaitWithDeadline(Mutex* mu, absl::Time deadline) {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    condition_.wait_until(lock, absl::ToChronoTime(deadline));
    lock.release();
  }
  void SignalAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

// gRPC calls one stream's callbacks one after the other, on any thread, by locks
// that the sanitizer does not see either: what is written before HandOver(stream)
// is seen after TakeOver(stream).
inline void HandOver(void* stream) { __tsan_release(stream); }
inline void TakeOver(void* stream) { __tsan_acquire(stream); }

}  // namespace leeway

#else

namespace leeway {

using Mutex = absl::Mutex;
using MutexLock = absl::MutexLock;
using CondVar = absl::CondVar;
inline void HandOver(void*) {}
inline void TakeOver(void*) {}

}  // namespace leeway

#endif

namespace leeway {

// Debian's Abseil checks every lock, gRPC's too, for an order that could deadlock.
// Tests keep that; programs do without it.
inline void TrustLockOrder() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace leeway

#endif  // LEEWAY_COMMON_MUTEX_H_
