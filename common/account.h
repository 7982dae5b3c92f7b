// Account: the blocks of memory that a program holds for one purpose, by count and size: now,
// and the most it ever held. Thread-safe; outlives the blocks.
#ifndef LEEWAY_COMMON_ACCOUNT_H_
#define LEEWAY_COMMON_ACCOUNT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"

namespace leeway {

class Account {
 public:
  struct Sum {
    int64_t blocks = 0;
    int64_t bytes = 0;
    bool operator==(const Sum&) const = default;
  };

  void Add(size_t bytes) {
    MutexLock lock(&mu_);
    now_.blocks += 1;
    now_.bytes += static_cast<int64_t>(bytes);
    most_.blocks = std::max(most_.blocks, now_.blocks);
    most_.bytes = std::max(most_.bytes, now_.bytes);
  }
  void Remove(size_t bytes) {
    MutexLock lock(&mu_);
    now_.blocks -= 1;
    now_.bytes -= static_cast<int64_t>(bytes);
  }

  Sum now() const {
    MutexLock lock(&mu_);
    return now_;
  }
  // The largest count and the largest size, which need not be of the same moment.
  Sum most() const {
    MutexLock lock(&mu_);
    return most_;
  }

 private:
  mutable Mutex mu_;
  Sum now_ ABSL_GUARDED_BY(mu_);
  Sum most_ ABSL_GUARDED_BY(mu_);
};

}  // namespace leeway

#endif  // LEEWAY_COMMON_ACCOUNT_H_
