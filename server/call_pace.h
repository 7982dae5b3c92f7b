// CallPace: how many calls each caller begins in a second, and who is shut out for having begun
// too many. Pure: time is an argument. Not thread-safe.
#ifndef LEEWAY_SERVER_CALL_PACE_H_
#define LEEWAY_SERVER_CALL_PACE_H_

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"

namespace leeway {

class CallPace {
 public:
  // A client begins a few calls in a round; calls that are begun and reset by the thousand are
  // an attack.
  static constexpr uint64_t kCallsPerSecond = 2000;
  static constexpr absl::Duration kShutOut = absl::Seconds(10);

  // A caller begins a call. False if it has begun too many in this second, and for kShutOut
  // after each call that was too many.
  bool Begin(const std::string& caller, absl::Time now) {
    if (now >= second_ + absl::Seconds(1)) {
      begun_.clear();
      second_ = now;
      absl::erase_if(shut_out_, [now](const auto& entry) { return entry.second <= now; });
    }
    if (++begun_[caller] > kCallsPerSecond) ShutOut(caller, now);
    return !shut_out_.contains(caller);
  }

  bool IsOut(const std::string& caller, absl::Time now) const {
    const auto found = shut_out_.find(caller);
    return found != shut_out_.end() && now < found->second;
  }
  // For kShutOut, whatever it has begun.
  void ShutOut(const std::string& caller, absl::Time now) { shut_out_[caller] = now + kShutOut; }

 private:
  absl::flat_hash_map<std::string, uint64_t> begun_;       // in this second, by caller
  absl::Time second_ = absl::InfinitePast();               // its start
  absl::flat_hash_map<std::string, absl::Time> shut_out_;  // until when
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_CALL_PACE_H_
