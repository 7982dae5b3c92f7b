// Summation: what adding up a round's reports takes, kept from one round to the next: the threads
// that share it, and the memory of the last sums. Not thread-safe.
#ifndef LEEWAY_SERVER_SUMMATION_H_
#define LEEWAY_SERVER_SUMMATION_H_

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "common/tally.h"
#include "common/workers.h"
#include "records/meter.h"
#include "server/aggregator.h"
#include "server/plain_aggregator.h"

namespace leeway {

class Summation {
 public:
  // The meter is optional and outlives this.
  explicit Summation(Meter* meter)
      : meter_(meter),
        workers_(std::clamp(std::thread::hardware_concurrency(), 1u, kMostWorkers)) {}

  // For one round. This outlives it.
  std::unique_ptr<Aggregator> Begin(PlainAggregator::Spec spec) {
    return std::make_unique<PlainAggregator>(std::move(spec), std::move(memory_), &workers_,
                                             meter_);
  }
  // The round's sums are not needed any more.
  void End(Tally sums) { memory_ = std::move(sums); }
  Workers& workers() { return workers_; }

 private:
  static constexpr unsigned kMostWorkers = 8;  // more are not faster than memory

  Meter* const meter_;
  Workers workers_;
  Tally memory_;
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_SUMMATION_H_
