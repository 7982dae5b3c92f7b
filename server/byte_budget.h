// ByteBudget: how much one connection sends beside the messages of its calls. Frames around
// messages are a few percent of them; a connection that sends megabytes of anything else floods
// the server: headers that never end, streams that are reset, settings.
// Pure: time is an argument. Not thread-safe.
#ifndef LEEWAY_SERVER_BYTE_BUDGET_H_
#define LEEWAY_SERVER_BYTE_BUDGET_H_

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"

namespace leeway {

class ByteBudget {
 public:
  // Forgiven in every second, once the connection has had a call.
  static constexpr uint64_t kPerSecond = uint64_t{2} << 20;
  // What a message of this size may take on its way, with its frames, the headers of its call and
  // window updates.
  static constexpr uint64_t WithFrames(uint64_t bytes) { return bytes + bytes / 16 + 256; }

  // What the connection has received since it was opened, and what of it belongs to messages that
  // a call has read: the sum of WithFrames.
  void Look(uint64_t received, uint64_t messages, bool has_called, absl::Time now) {
    const double seconds =
        has_called ? std::clamp(absl::ToDoubleSeconds(now - seen_), 0.0, kMostSeconds) : 0;
    const uint64_t accounted =
        messages - messages_ + static_cast<uint64_t>(seconds * static_cast<double>(kPerSecond));
    debt_ += received - received_;
    debt_ -= std::min(debt_, accounted);
    received_ = received;
    messages_ = messages;
    seen_ = now;
  }

  // Bytes that nothing accounts for: those of a message that has come in part, or of a flood.
  uint64_t debt() const { return debt_; }

 private:
  static constexpr double kMostSeconds = 60;

  uint64_t received_ = 0;
  uint64_t messages_ = 0;
  uint64_t debt_ = 0;
  absl::Time seen_ = absl::InfiniteFuture();  // no time has passed before the first look
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_BYTE_BUDGET_H_
