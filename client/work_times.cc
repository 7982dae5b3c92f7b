#include "client/work_times.h"

#include <algorithm>
#include <numeric>

namespace leeway {
namespace {

double Seconds(WorkTimes::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

WorkTimes::WorkTimes(size_t clients, size_t threads, Clock::time_point begin)
    : threads_(threads), begin_(begin), seconds_(clients) {}

void WorkTimes::Done(size_t place, Clock::time_point now) {
  const std::thread::id self = std::this_thread::get_id();
  Clock::time_point before = begin_;
  {
    const std::lock_guard lock(mu_);
    const auto own = std::find_if(last_.begin(), last_.end(),
                                  [&](const auto& one) { return one.first == self; });
    if (own == last_.end()) {
      last_.emplace_back(self, now);
    } else {
      before = std::exchange(own->second, now);
    }
  }
  seconds_[place] = Seconds(now - before);
}

double WorkTimes::wall() const {
  Clock::time_point end = begin_;
  for (const auto& [thread, last] : last_) end = std::max(end, last);
  return Seconds(end - begin_);
}

double WorkTimes::busy() const { return std::accumulate(seconds_.begin(), seconds_.end(), 0.0); }

double WorkTimes::idle() const {
  // A worker that starts a thread for every client has more threads than it says.
  const size_t threads = std::max(threads_, last_.size());
  return std::max(0.0, wall() * static_cast<double>(threads) - busy());
}

}  // namespace leeway
