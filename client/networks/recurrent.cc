#include "client/networks/recurrent.h"

#include <algorithm>

namespace leeway::networks {
namespace {

template <typename T>
Eigen::Map<Eigen::Array<T, Eigen::Dynamic, 1>> Values(T* data, Index size) {
  return {data, size};
}

}  // namespace

template <typename T>
void Embedding<T>::Forward(const T* w, Extent extent, const int32_t* tokens, T* y) const {
  for (Index row = 0; row < extent.rows(); ++row) {
    std::copy_n(w + tokens[row] * size_, size_, y + row * size_);
  }
}

template <typename T>
void Embedding<T>::Backward(Extent extent, const int32_t* tokens, const T* dy, T* dw,
                            Write write) const {
  if (write == Write::kSet) std::fill_n(dw, parameters(), T(0));
  for (Index row = 0; row < extent.rows(); ++row) {
    View(dw + tokens[row] * size_, 1, size_) += View(dy + row * size_, 1, size_);
  }
}

template <typename T>
LstmLayer<T>::LstmLayer(Index inputs, Index hidden, Extent largest)
    : inputs_(inputs),
      hidden_(hidden),
      recurrent_(hidden, 4 * hidden),
      transposed_(4 * hidden, hidden),
      gates_(largest.rows() * 4 * hidden),
      cells_(largest.rows() * hidden),
      squashed_(largest.rows() * hidden),
      dh_(largest.examples * hidden),
      dc_(largest.examples * hidden),
      zeros_(Vector<T>::Zero(hidden)) {}

template <typename T>
void LstmLayer<T>::Forward(const T* w, Extent extent, Rng*, const T* x, T* y) {
  const Index width = 4 * hidden_;
  const T* u = w + inputs_ * width;
  Multiply<T>(View(x, extent.rows(), inputs_), View(w, inputs_, width),
              View(gates_.data(), extent.rows(), width), Write::kSet, u + hidden_ * width);
  recurrent_.Pack(View(u, hidden_, width));
  for (Index step = 0; step < extent.steps; ++step) {
    const Index row = step * extent.examples;
    if (step > 0) {
      recurrent_.Multiply(View<T>(static_cast<const T*>(y) + (row - extent.examples) * hidden_,
                                  extent.examples, hidden_),
                          View(gates_.data() + row * width, extent.examples, width), Write::kAdd);
    }
    StepForward(step, extent.examples, y);
  }
}

template <typename T>
void LstmLayer<T>::StepForward(Index step, Index examples, T* y) {
  for (Index row = step * examples; row < (step + 1) * examples; ++row) {
    T* gates = gates_.data() + row * 4 * hidden_;
    auto input_forget = Values(gates, 2 * hidden_);
    auto input = Values(gates, hidden_);
    auto forget = Values(gates + hidden_, hidden_);
    auto candidate = Values(gates + 2 * hidden_, hidden_);
    auto output = Values(gates + 3 * hidden_, hidden_);
    auto cell = Values(cells_.data() + row * hidden_, hidden_);
    auto squashed = Values(squashed_.data() + row * hidden_, hidden_);
    input_forget = input_forget.logistic();
    candidate = candidate.tanh();
    output = output.logistic();
    cell = input * candidate;
    if (step > 0) cell += forget * Values(cell.data() - examples * hidden_, hidden_);
    squashed = cell.tanh();
    Values(y + row * hidden_, hidden_) = output * squashed;
  }
}

template <typename T>
void LstmLayer<T>::Backward(const T* w, Extent extent, const T* x, const T* y, const T* dy, T* dx,
                            T* dw, Write write) {
  const Index width = 4 * hidden_;
  const Index examples = extent.examples;
  const Index rows = extent.rows();
  transposed_.PackTransposed(View(w + inputs_ * width, hidden_, width));
  dh_.setZero();
  dc_.setZero();
  for (Index step = extent.steps - 1; step >= 0; --step) {
    StepBackward(step, extent, dy);
    if (step == 0) break;
    const T* error = gates_.data() + step * examples * width;
    transposed_.Multiply(View(error, examples, width), View(dh_.data(), examples, hidden_),
                         Write::kSet);
  }
  const T* errors = gates_.data();
  T* du = dw + inputs_ * width;
  MultiplyTransposedA<T>(View(x, rows, inputs_), View(errors, rows, width),
                         View(dw, inputs_, width), write);
  MultiplyTransposedA<T>(View(y, rows - examples, hidden_),
                         View(errors + examples * width, rows - examples, width),
                         View(du, hidden_, width), write);
  if (extent.steps == 1 && write == Write::kSet) View(du, hidden_, width).setZero();
  SumRows<T>(View(errors, rows, width), du + hidden_ * width, write);
  if (dx == nullptr) return;
  MultiplyTransposedB<T>(View(errors, rows, width), View(w, inputs_, width),
                         View(dx, rows, inputs_), Write::kSet);
}

// Turns the gates of one step into the gradients of their pre-activations.
template <typename T>
void LstmLayer<T>::StepBackward(Index step, Extent extent, const T* dy) {
  for (Index example = 0; example < extent.examples; ++example) {
    const Index row = step * extent.examples + example;
    T* __restrict input = gates_.data() + row * 4 * hidden_;
    T* __restrict forget = input + hidden_;
    T* __restrict candidate = input + 2 * hidden_;
    T* __restrict output = input + 3 * hidden_;
    const T* squashed = squashed_.data() + row * hidden_;
    const T* before = step > 0 ? cells_.data() + (row - extent.examples) * hidden_ : zeros_.data();
    const T* dh_out = dy + row * hidden_;
    const T* dh_next = dh_.data() + example * hidden_;
    T* __restrict dc_next = dc_.data() + example * hidden_;
    for (Index k = 0; k < hidden_; ++k) {
      const T i = input[k], f = forget[k], g = candidate[k], o = output[k];
      const T dh = dh_out[k] + dh_next[k];
      const T dc = dc_next[k] + dh * o * (1 - squashed[k] * squashed[k]);
      input[k] = dc * g * i * (1 - i);
      forget[k] = dc * before[k] * f * (1 - f);
      candidate[k] = dc * i * (1 - g * g);
      output[k] = dh * squashed[k] * o * (1 - o);
      dc_next[k] = dc * f;
    }
  }
}

template class Embedding<float>;
template class Embedding<double>;
template class LstmLayer<float>;
template class LstmLayer<double>;

}  // namespace leeway::networks
