// The loss of all networks here: cross-entropy of a softmax.
#ifndef LEEWAY_CLIENT_NETWORKS_CROSS_ENTROPY_H_
#define LEEWAY_CLIENT_NETWORKS_CROSS_ENTROPY_H_

#include <cstdint>

#include "client/networks/gemm.h"

namespace leeway::networks {

// Sums over the rows that count: those whose target is not `ignored`.
struct Outcome {
  uint64_t rows = 0;
  double loss_sum = 0;
  uint64_t correct = 0;
};

template <typename T>
class SoftmaxCrossEntropy {
 public:
  // `ignored`: the target of rows that count neither in loss nor in accuracy.
  explicit SoftmaxCrossEntropy(int32_t ignored) : ignored_(ignored) {}

  // Sums at the given logits, one row per target. Overwrites the logits with the
  // gradient of scale * loss_sum.
  Outcome Gradient(Block<T> logits, const int32_t* targets, T scale) const;
  // The same without the gradient; the logits' content is lost. Also counts
  // correct answers (Gradient does not: training has no use for them).
  Outcome Score(Block<T> logits, const int32_t* targets) const;

 private:
  const int32_t ignored_;
};

}  // namespace leeway::networks

#endif  // LEEWAY_CLIENT_NETWORKS_CROSS_ENTROPY_H_
