// CostBook: how much work clients are beside one another, so that those who compute them can be
// kept busy to the end. A client costs as much as it has examples until it has been timed; then
// as much as its time says, on the scale of the clients that were timed with it. Times of
// different tasks therefore go together. Nothing but speed depends on it.
#ifndef LEEWAY_CLIENT_COST_BOOK_H_
#define LEEWAY_CLIENT_COST_BOOK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace leeway {

class CostBook {
 public:
  // A client of an order that was computed.
  struct Timed {
    uint32_t client = 0;
    uint64_t examples = 0;
    double seconds = 0;
  };

  // What a client with so many examples costs, in examples of an average client.
  double Cost(uint32_t client, uint64_t examples) const;
  // The clients of one order have taken these times.
  void Add(absl::Span<const Timed> order);

 private:
  std::vector<float> ratios_;  // by client: its time per example beside the average; 0: not known
};

// Of the time of `workers` that begin together and compute these costs, each as assigned: the
// share in which they have nothing to do because another one is not done yet.
double IdleShare(absl::Span<const double> costs, absl::Span<const int> assigned, int workers);

}  // namespace leeway

#endif  // LEEWAY_CLIENT_COST_BOOK_H_
