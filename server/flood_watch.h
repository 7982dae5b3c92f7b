// FloodWatch: how much a connection may send beside messages (ByteBudget) before it is closed,
// and how often that is looked at. As long as somebody floods the server, connections that have
// proved nothing get less, and they are looked at more often. It also watches the process's
// memory: when that grows by much in a short time, everybody is allowed less.
//
//   quiet    -> alarmed   a connection or a caller was cut off, or memory grows fast
//   alarmed  -> quiet     kAlarm has passed since the last of these
//
// Pure: time and sizes are arguments. Not thread-safe.
#ifndef LEEWAY_SERVER_FLOOD_WATCH_H_
#define LEEWAY_SERVER_FLOOD_WATCH_H_

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"
#include "common/wire.h"

namespace leeway {

class FloodWatch {
 public:
  static constexpr absl::Duration kAlarm = absl::Seconds(10);
  static constexpr absl::Duration kQuietPause = absl::Milliseconds(250);
  static constexpr absl::Duration kAlarmPause = absl::Milliseconds(20);

  // One message of the largest size, which no call has read yet, and a handshake.
  static constexpr uint64_t kOneMessage = kMaxMessageBytes + (uint64_t{1} << 20);
  // Those that have had a call: several messages at a time, some of calls that were ended.
  static constexpr uint64_t kWithCalls = 3 * kOneMessage;
  // Without a call, while alarmed: a handshake, in which TLS allows 100 kB of certificates.
  static constexpr uint64_t kHandshake = uint64_t{256} << 10;

  // Growth of memory that a run does not have by itself, unless its model is that large.
  static constexpr uint64_t kGrowth = uint64_t{256} << 20;
  static constexpr absl::Duration kGrowthTime = absl::Seconds(60);

  // Somebody was cut off.
  void Alarm(absl::Time now) { alarmed_until_ = now + kAlarm; }
  bool alarmed(absl::Time now) const { return now < alarmed_until_; }

  // The process has so many bytes in memory.
  void SetMemory(uint64_t bytes, absl::Time now) {
    const auto resident = static_cast<double>(bytes);
    // The usual size follows the size slowly upwards, and at once downwards.
    const double elapsed =
        usual_ == 0 ? 1 : std::clamp(absl::FDivDuration(now - measured_, kGrowthTime), 0.0, 1.0);
    usual_ = std::min(resident, usual_ + elapsed * (resident - usual_));
    measured_ = now;
    short_ = resident > usual_ + static_cast<double>(kGrowth);
    if (short_) Alarm(now);
  }
  // Memory has grown by kGrowth in less than kGrowthTime.
  bool memory_short() const { return short_; }

  // Debt beyond which a connection is closed.
  uint64_t Allowed(bool has_called, absl::Time now) const {
    if (!has_called) return alarmed(now) ? kHandshake : kOneMessage;
    return short_ ? kOneMessage : kWithCalls;
  }

  absl::Duration Pause(absl::Time now) const { return alarmed(now) ? kAlarmPause : kQuietPause; }

 private:
  absl::Time alarmed_until_ = absl::InfinitePast();
  double usual_ = 0;  // bytes in memory
  absl::Time measured_ = absl::InfinitePast();
  bool short_ = false;
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_FLOOD_WATCH_H_
