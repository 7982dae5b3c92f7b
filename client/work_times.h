// WorkTimes: how long the clients of one order took, and how long the threads that computed them
// had nothing left to do. A client's time is that since the same thread was done with the one
// before it, so nobody has to say when work on a client begins. Done is thread-safe.
#ifndef LEEWAY_CLIENT_WORK_TIMES_H_
#define LEEWAY_CLIENT_WORK_TIMES_H_

#include <chrono>
#include <cstddef>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace leeway {

class WorkTimes {
 public:
  using Clock = std::chrono::steady_clock;

  // The work on so many clients begins, by at most so many threads.
  WorkTimes(size_t clients, size_t threads, Clock::time_point begin = Clock::now());
  // The calling thread is done with the client at this place of the order.
  void Done(size_t place, Clock::time_point now = Clock::now());

  // Of each client, by place; 0 if it was not computed.
  const std::vector<double>& seconds() const { return seconds_; }
  // From the beginning until the last client was done.
  double wall() const;
  // What all clients took, added up.
  double busy() const;
  // How long threads had nothing to do until the last client was done, added up.
  double idle() const;
  size_t threads() const { return threads_; }

 private:
  const size_t threads_;
  const Clock::time_point begin_;
  std::mutex mu_;
  std::vector<std::pair<std::thread::id, Clock::time_point>> last_;  // guarded by mu_
  std::vector<double> seconds_;  // each element belongs to the thread that computes the client
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_WORK_TIMES_H_
