// Workers: threads that share a loop's turns. Made once, so that a round of a
// millisecond does not pay for starting threads. One Run at a time.
#ifndef LEEWAY_COMMON_WORKERS_H_
#define LEEWAY_COMMON_WORKERS_H_

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace leeway {

class Workers {
 public:
  // The caller of Run is one of the `threads`.
  explicit Workers(size_t threads) {
    for (size_t i = 1; i < threads; ++i) helpers_.emplace_back([this] { Help(); });
  }
  ~Workers() {
    {
      const std::lock_guard lock(mu_);
      ending_ = true;
    }
    begin_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // body(0) .. body(turns - 1), each once, in any order; returns when all are done.
  void Run(size_t turns, const std::function<void(size_t)>& body) {
    if (turns < 2 || helpers_.empty()) {
      for (size_t i = 0; i < turns; ++i) body(i);
      return;
    }
    {
      const std::lock_guard lock(mu_);
      body_ = &body;
      turns_ = turns;
      next_ = 0;
      busy_ = helpers_.size();
      ++loop_;
    }
    begin_.notify_all();
    Work();
    std::unique_lock lock(mu_);
    done_.wait(lock, [this] { return busy_ == 0; });
  }

 private:
  void Work() {
    for (size_t i = next_++; i < turns_; i = next_++) (*body_)(i);
  }
  void Help() {
    uint64_t seen = 0;
    std::unique_lock lock(mu_);
    while (true) {
      begin_.wait(lock, [&] { return ending_ || loop_ != seen; });
      if (ending_) return;
      seen = loop_;
      lock.unlock();
      Work();
      lock.lock();
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::mutex mu_;
  std::condition_variable begin_;
  std::condition_variable done_;
  bool ending_ = false;
  uint64_t loop_ = 0;  // number of the loop that runs
  size_t busy_ = 0;    // helpers that have not seen its end
  // Of the loop that runs: constant while any helper is busy.
  const std::function<void(size_t)>* body_ = nullptr;
  size_t turns_ = 0;
  std::atomic<size_t> next_{0};
  std::vector<std::thread> helpers_;
};

// body(begin, size) for blocks that together are [0, n): shared among the workers, if
// any, where there are enough of them to be worth a wake-up.
template <typename Body>
void ForBlocks(size_t n, Workers* workers, const Body& body) {
  constexpr size_t kBlock = size_t{1} << 17;
  const size_t blocks = (n + kBlock - 1) / kBlock;
  const auto block = [&](size_t b) { body(b * kBlock, std::min(kBlock, n - b * kBlock)); };
  if (workers != nullptr) return workers->Run(blocks, block);
  for (size_t b = 0; b < blocks; ++b) block(b);
}

}  // namespace leeway

#endif  // LEEWAY_COMMON_WORKERS_H_
