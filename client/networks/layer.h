// Layer: one stage of a network, as a function of its part of the flat parameter
// vector and a batch. A layer has no parameters of its own; what it remembers
// between Forward and Backward is scratch space, sized at construction, so
// neither allocates. One thread at a time.
//
// A batch is row-major: a row is one example, or one step of a sequence. The
// rows of sequences are ordered by step first: [step][example].
#ifndef LEEWAY_CLIENT_NETWORKS_LAYER_H_
#define LEEWAY_CLIENT_NETWORKS_LAYER_H_

#include <cstdint>
#include <vector>

#include "client/networks/gemm.h"
#include "common/rng.h"
#include "common/vectors.h"

namespace leeway::networks {

// The size of a batch.
struct Extent {
  Index examples = 0;
  Index steps = 1;  // of a sequence
  Index rows() const { return examples * steps; }
};

template <typename T>
class Layer {
 public:
  virtual ~Layer() = default;

  virtual Index inputs() const = 0;   // values per row
  virtual Index outputs() const = 0;  // values per row
  virtual Index parameters() const { return 0; }
  // True if x and y, and dx and dy, may be (and here are) the same memory.
  virtual bool in_place() const { return false; }

  // y from x. `dropout` is null when nothing shall be dropped.
  virtual void Forward(const T* w, Extent extent, Rng* dropout, const T* x, T* y) = 0;
  // After Forward with the same arguments: from dy, the gradient of the loss in
  // y, those in the parameters (set or added to) and in x (unless dx is null).
  virtual void Backward(const T* w, Extent extent, const T* x, const T* y, const T* dy, T* dx,
                        T* dw, Write write) = 0;
};

// y = x W + b. Parameters: W [inputs, outputs], b [outputs] (as in Keras; PyTorch
// stores the transpose of W).
template <typename T>
class Dense final : public Layer<T> {
 public:
  Dense(Index inputs, Index outputs) : inputs_(inputs), outputs_(outputs) {}
  Index inputs() const override { return inputs_; }
  Index outputs() const override { return outputs_; }
  Index parameters() const override { return (inputs_ + 1) * outputs_; }
  void Forward(const T* w, Extent extent, Rng* dropout, const T* x, T* y) override;
  void Backward(const T* w, Extent extent, const T* x, const T* y, const T* dy, T* dx, T* dw,
                Write write) override;

 private:
  const Index inputs_;
  const Index outputs_;
};

// y = max(x, 0), in place.
template <typename T>
class Relu final : public Layer<T> {
 public:
  explicit Relu(Index size) : size_(size) {}
  Index inputs() const override { return size_; }
  Index outputs() const override { return size_; }
  bool in_place() const override { return true; }
  void Forward(const T* w, Extent extent, Rng* dropout, const T* x, T* y) override;
  void Backward(const T* w, Extent extent, const T* x, const T* y, const T* dy, T* dx, T* dw,
                Write write) override;

 private:
  const Index size_;
};

// Sets each value to zero with probability `rate`, else scales it by
// 1 / (1 - rate), in place. Without a stream of random numbers, nothing happens.
template <typename T>
class Dropout final : public Layer<T> {
 public:
  Dropout(Index size, double rate, Extent largest);
  Index inputs() const override { return size_; }
  Index outputs() const override { return size_; }
  bool in_place() const override { return true; }
  void Forward(const T* w, Extent extent, Rng* dropout, const T* x, T* y) override;
  void Backward(const T* w, Extent extent, const T* x, const T* y, const T* dy, T* dx, T* dw,
                Write write) override;

 private:
  const Index size_;
  const double rate_;
  bool active_ = false;
  Vector<T> factors_;  // 0 or 1 / (1 - rate) for each value of the batch
};

}  // namespace leeway::networks

#endif  // LEEWAY_CLIENT_NETWORKS_LAYER_H_
