// Layers over sequences: rows are ordered [step][example].
#ifndef LEEWAY_CLIENT_NETWORKS_RECURRENT_H_
#define LEEWAY_CLIENT_NETWORKS_RECURRENT_H_

#include <cstdint>

#include "client/networks/layer.h"

namespace leeway::networks {

// A vector for each token. Parameters: [vocabulary, size]. Not a Layer, because
// tokens are integers: it feeds the first layer.
template <typename T>
class Embedding {
 public:
  Embedding(Index vocabulary, Index size) : vocabulary_(vocabulary), size_(size) {}
  Index outputs() const { return size_; }
  Index parameters() const { return vocabulary_ * size_; }
  void Forward(const T* w, Extent extent, const int32_t* tokens, T* y) const;
  void Backward(Extent extent, const int32_t* tokens, const T* dy, T* dw, Write write) const;

 private:
  const Index vocabulary_;
  const Index size_;
};

// Long short-term memory, starting from a zero state:
//   [i f g o] = x_t W + h_{t-1} U + b,
//   c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g),  h_t = sigmoid(o) tanh(c_t).
// Parameters: W [inputs, 4 hidden], U [hidden, 4 hidden], b [4 hidden], gates in
// the order i f g o (as in Keras; PyTorch has the transposes, and two biases that
// add up to b).
template <typename T>
class LstmLayer final : public Layer<T> {
 public:
  LstmLayer(Index inputs, Index hidden, Extent largest);
  Index inputs() const override { return inputs_; }
  Index outputs() const override { return hidden_; }
  Index parameters() const override { return (inputs_ + hidden_ + 1) * 4 * hidden_; }
  void Forward(const T* w, Extent extent, Rng* dropout, const T* x, T* y) override;
  void Backward(const T* w, Extent extent, const T* x, const T* y, const T* dy, T* dx, T* dw,
                Write write) override;

 private:
  void StepForward(Index step, Index examples, T* y);
  void StepBackward(Index step, Extent extent, const T* dy);

  const Index inputs_;
  const Index hidden_;
  Panels<T> recurrent_;   // U
  Panels<T> transposed_;  // U transposed
  Vector<T> gates_;       // [step][example][i f g o]; in Backward, their gradients
  Vector<T> cells_;       // c
  Vector<T> squashed_;    // tanh(c)
  Vector<T> dh_;          // [example][hidden], from the step after
  Vector<T> dc_;
  Vector<T> zeros_;  // the cells before the first step
};

}  // namespace leeway::networks

#endif  // LEEWAY_CLIENT_NETWORKS_RECURRENT_H_
