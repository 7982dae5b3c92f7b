#include "client/networks/layer.h"

#include <algorithm>

namespace leeway::networks {

template <typename T>
void Dense<T>::Forward(const T* w, Extent extent, Rng*, const T* x, T* y) {
  Multiply<T>(View(x, extent.rows(), inputs_), View(w, inputs_, outputs_),
              View(y, extent.rows(), outputs_), Write::kSet, w + inputs_ * outputs_);
}

template <typename T>
void Dense<T>::Backward(const T* w, Extent extent, const T* x, const T*, const T* dy, T* dx, T* dw,
                        Write write) {
  const ConstBlock<T> error = View(dy, extent.rows(), outputs_);
  MultiplyTransposedA<T>(View(x, extent.rows(), inputs_), error, View(dw, inputs_, outputs_),
                         write);
  SumRows<T>(error, dw + inputs_ * outputs_, write);
  if (dx == nullptr) return;
  MultiplyTransposedB<T>(error, View(w, inputs_, outputs_), View(dx, extent.rows(), inputs_),
                         Write::kSet);
}

template <typename T>
void Relu<T>::Forward(const T*, Extent extent, Rng*, const T* x, T* y) {
  const Index size = extent.rows() * size_;
  for (Index i = 0; i < size; ++i) y[i] = x[i] > 0 ? x[i] : T(0);
}

template <typename T>
void Relu<T>::Backward(const T*, Extent extent, const T*, const T* y, const T* dy, T* dx, T*,
                       Write) {
  const Index size = extent.rows() * size_;
  for (Index i = 0; i < size; ++i) dx[i] = y[i] > 0 ? dy[i] : T(0);
}

template <typename T>
Dropout<T>::Dropout(Index size, double rate, Extent largest)
    : size_(size), rate_(rate), factors_(rate > 0 ? largest.rows() * size : 0) {}

template <typename T>
void Dropout<T>::Forward(const T*, Extent extent, Rng* dropout, const T* x, T* y) {
  active_ = dropout != nullptr && rate_ > 0;
  if (!active_) return;
  // Four decisions of 16 bits from each random number.
  const auto limit = static_cast<uint64_t>(rate_ * 65536);
  const T kept = static_cast<T>(1 / (1 - rate_));
  const Index size = extent.rows() * size_;
  for (Index i = 0; i < size; i += 4) {
    uint64_t bits = dropout->Next64();
    for (Index j = i; j < std::min(i + 4, size); ++j, bits >>= 16) {
      factors_[j] = (bits & 0xffff) < limit ? T(0) : kept;
      y[j] = x[j] * factors_[j];
    }
  }
}

template <typename T>
void Dropout<T>::Backward(const T*, Extent extent, const T*, const T*, const T* dy, T* dx, T*,
                          Write) {
  if (!active_) return;
  const Index size = extent.rows() * size_;
  for (Index i = 0; i < size; ++i) dx[i] = dy[i] * factors_[i];
}

template class Dense<float>;
template class Dense<double>;
template class Relu<float>;
template class Relu<double>;
template class Dropout<float>;
template class Dropout<double>;

}  // namespace leeway::networks
