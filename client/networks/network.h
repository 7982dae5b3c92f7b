// Network: layers in a row, from a batch of inputs to the loss and its gradient
// in the flat parameter vector. Holds all scratch space, sized at construction:
// nothing allocates afterwards. One thread at a time. The product computes in
// float; gradient checks use the same code in double.
#ifndef LEEWAY_CLIENT_NETWORKS_NETWORK_H_
#define LEEWAY_CLIENT_NETWORKS_NETWORK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "client/networks/cross_entropy.h"
#include "client/networks/layer.h"
#include "client/networks/recurrent.h"
#include "common/rng.h"
#include "common/vectors.h"

namespace leeway::networks {

template <typename T>
class Network {
 public:
  using Layers = std::vector<std::unique_ptr<Layer<T>>>;

  // `largest`: the largest batch. With an embedding, inputs are tokens. Rows
  // whose target is `ignored` do not count.
  Network(std::unique_ptr<Embedding<T>> embedding, Layers layers, Extent largest, int32_t ignored);

  Index parameters() const { return parameters_; }
  Index inputs() const { return layers_.front()->inputs(); }
  Extent largest() const { return largest_; }
  bool takes_tokens() const { return embedding_ != nullptr; }

  // The batch, to be filled in before each call: inputs [row][inputs()] (or
  // tokens [row]) and targets [row]. Train and Test leave only targets intact.
  T* batch() { return values_.front(); }
  int32_t* tokens() { return tokens_.data(); }
  int32_t* targets() { return targets_.data(); }

  // Sums at w over the batch; the gradient of scale * loss_sum is written or
  // added to `gradient`. Drops values if `dropout` is not null.
  Outcome Train(const T* w, Extent extent, T scale, Rng* dropout, T* gradient, Write write);
  // `logits`, if not null, is called with them before they are lost: one row per target.
  Outcome Test(const T* w, Extent extent,
               const std::function<void(const Block<T>& logits)>& logits = nullptr);

 private:
  Block<T> Logits(const T* w, Extent extent, Rng* dropout);
  void Backward(const T* w, Extent extent, T* gradient, Write write);

  const std::unique_ptr<Embedding<T>> embedding_;
  const Layers layers_;
  const Extent largest_;
  const SoftmaxCrossEntropy<T> loss_;
  Index parameters_ = 0;
  std::vector<Index> offsets_;      // of each layer's parameters
  std::vector<Vector<T>> storage_;  // of values_
  std::vector<T*> values_;          // x of each layer, then the logits
  Vector<T> errors_[2];             // gradients in values, in turn
  std::vector<int32_t> tokens_;
  std::vector<int32_t> targets_;
};

}  // namespace leeway::networks

#endif  // LEEWAY_CLIENT_NETWORKS_NETWORK_H_
