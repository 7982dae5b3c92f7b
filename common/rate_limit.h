// RateLimit: lets the first things of a cause pass, and then one in every period, so that
// somebody who causes the same thing without end fills neither a log nor a disk. What was held
// back is counted. Pure: time is an argument. Not thread-safe.
#ifndef LEEWAY_COMMON_RATE_LIMIT_H_
#define LEEWAY_COMMON_RATE_LIMIT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"

namespace leeway {

class RateLimit {
 public:
  RateLimit(uint64_t first, absl::Duration period) : first_(first), period_(period) {}

  // Nothing: hold it back. Else how many of its cause were held back since the last that passed.
  std::optional<uint64_t> Pass(const std::string& cause, absl::Time now) {
    // Who invents causes without end shares one with all that come after.
    const bool known = causes_.contains(cause) || causes_.size() < kMostCauses;
    Cause& entry = causes_[known ? cause : ""];
    if (entry.passed < first_ || now - entry.last >= period_) {
      ++entry.passed;
      entry.last = now;
      return std::exchange(entry.held, 0);
    }
    ++entry.held;
    return std::nullopt;
  }

 private:
  static constexpr size_t kMostCauses = 10'000;
  struct Cause {
    uint64_t passed = 0;
    uint64_t held = 0;
    absl::Time last = absl::InfinitePast();
  };

  const uint64_t first_;
  const absl::Duration period_;
  absl::flat_hash_map<std::string, Cause> causes_;
};

}  // namespace leeway

#endif  // LEEWAY_COMMON_RATE_LIMIT_H_
