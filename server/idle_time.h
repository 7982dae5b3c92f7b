// IdleTime: of the time of all threads and ranks that host a round's clients, how much they had
// nothing to compute, from what the reports say of it. A figure for people: what a client claims
// here reaches nothing else.
#ifndef LEEWAY_SERVER_IDLE_TIME_H_
#define LEEWAY_SERVER_IDLE_TIME_H_

#include <cmath>
#include <limits>

#include "proto/federation.pb.h"

namespace leeway {

class IdleTime {
 public:
  void Add(const v1::ReportHeader& header) {
    const double busy = header.busy_seconds();
    const double idle = header.idle_seconds();
    // More than any process can have spent; NaN fails here, too.
    constexpr double kMost = 1e9;
    if (!(busy > 0 && busy < kMost && idle >= 0 && idle < kMost)) return;
    busy_ += busy;
    idle_ += idle;
  }
  void Add(const IdleTime& other) {
    busy_ += other.busy_;
    idle_ += other.idle_;
  }
  // NaN if no report said anything.
  double share() const {
    return busy_ > 0 ? idle_ / (busy_ + idle_) : std::numeric_limits<double>::quiet_NaN();
  }

 private:
  double busy_ = 0;
  double idle_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_IDLE_TIME_H_
