// RefusalCounts: how many calls and reports were refused, by reason. Thread-safe.
#ifndef LEEWAY_SERVER_REFUSAL_COUNTS_H_
#define LEEWAY_SERVER_REFUSAL_COUNTS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/mutex.h"
#include "common/reason.h"
#include "records/meter.h"

namespace leeway {

class RefusalCounts {
 public:
  // The meter is optional and outlives the counts.
  explicit RefusalCounts(Meter* meter) : meter_(meter) {}

  // A call that its caller gave up was not refused.
  void Count(const absl::Status& status) {
    if (status.ok() || absl::IsCancelled(status)) return;
    const std::string reason = ReasonOf(status);
    if (meter_) meter_->Refused(reason);
    MutexLock lock(&mu_);
    ++counts_[reason];
  }
  std::map<std::string, uint64_t> all() const {
    MutexLock lock(&mu_);
    return counts_;
  }

 private:
  Meter* const meter_;
  mutable Mutex mu_;
  std::map<std::string, uint64_t> counts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_REFUSAL_COUNTS_H_
