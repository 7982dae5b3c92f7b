// Time for deadlines: it goes on evenly when somebody sets the machine's clock.
#ifndef LEEWAY_SERVER_STEADY_TIME_H_
#define LEEWAY_SERVER_STEADY_TIME_H_

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace leeway {

// The wall clock as it was at the first call, plus the time since then.
inline absl::Time SteadyNow() {
  static const absl::Time start = absl::Now();
  static const auto origin = std::chrono::steady_clock::now();
  return start + absl::FromChrono(std::chrono::steady_clock::now() - origin);
}

}  // namespace leeway

#endif  // LEEWAY_SERVER_STEADY_TIME_H_
