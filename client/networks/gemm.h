// Matrix products for the networks, on blocks of row-major memory. Eigen's own
// product packs both factors on every call, allocates for it, and blocks by the
// size of the caches it finds, so its last bits differ between machines. These
// kernels (on Eigen's SIMD packets) read the left factor where it lies, allocate
// nothing, and add in an order that depends on the shapes alone. They do best at
// what networks need: few rows, or weights that are packed once and used often.
#ifndef LEEWAY_CLIENT_NETWORKS_GEMM_H_
#define LEEWAY_CLIENT_NETWORKS_GEMM_H_

#include <Eigen/Core>

#include "common/vectors.h"

namespace leeway::networks {

using Index = Eigen::Index;

// A block of row-major memory whose rows are `outerStride` apart. A stride
// smaller than the width is fine for reading: rows then overlap (convolution).
template <typename T>
using ConstBlock = Eigen::Map<const Matrix<T>, 0, Eigen::OuterStride<>>;
template <typename T>
using Block = Eigen::Map<Matrix<T>, 0, Eigen::OuterStride<>>;

template <typename T>
ConstBlock<T> View(const T* data, Index rows, Index cols, Index stride) {
  return ConstBlock<T>(data, rows, cols, Eigen::OuterStride<>(stride));
}
template <typename T>
ConstBlock<T> View(const T* data, Index rows, Index cols) {
  return View(data, rows, cols, cols);
}
template <typename T>
Block<T> View(T* data, Index rows, Index cols, Index stride) {
  return Block<T>(data, rows, cols, Eigen::OuterStride<>(stride));
}
template <typename T>
Block<T> View(T* data, Index rows, Index cols) {
  return View(data, rows, cols, cols);
}

// Whether a result replaces what was there or is added to it.
enum class Write { kSet, kAdd };

// C = A B, or C += A B. With `bias`, C = A B + (bias in every row).
template <typename T>
void Multiply(ConstBlock<T> a, ConstBlock<T> b, Block<T> c, Write write, const T* bias = nullptr);
// C = A^T B, or C += A^T B.
template <typename T>
void MultiplyTransposedA(ConstBlock<T> a, ConstBlock<T> b, Block<T> c, Write write);
// C = A B^T, or C += A B^T.
template <typename T>
void MultiplyTransposedB(ConstBlock<T> a, ConstBlock<T> b, Block<T> c, Write write);

// total[j] = or += the sum of column j of a.
template <typename T>
void SumRows(ConstBlock<T> a, T* total, Write write);

// The left factor of a product with packed panels. Row r starts at
// data + r * stride; its elements are `segments` runs of `length` consecutive
// values, `jump` apart. (Transposed: element r of the run's k-th row.)
template <typename T>
struct Strip {
  const T* data;
  Index stride;
  Index segments;
  Index length;
  Index jump;
};

// Columns of one panel: two SIMD packets.
template <typename T>
constexpr Index kPanelWidth = 2 * Eigen::internal::packet_traits<T>::size;

// One panel of a product: `c` (rows x width, width <= kPanelWidth) = or +=
// strip * panel, where panel is [depth][kPanelWidth], zero-padded. `start` holds
// what the sums begin with: row r at start + r * start_stride; null: zero.
template <typename T>
void MultiplyPanel(const Strip<T>& a, Index rows, const T* panel, const T* start,
                   Index start_stride, Block<T> c);
// The same with the strip transposed: c = or += strip^T * panel.
template <typename T>
void MultiplyPanelTransposedA(const Strip<T>& a, Index rows, const T* panel, const T* start,
                              Index start_stride, Block<T> c);

// Copies rows of `b` (depth x at most kPanelWidth) into a panel.
template <typename T>
void PackPanel(ConstBlock<T> b, T* panel);
// The same from the transpose of `b` (at most kPanelWidth x depth).
template <typename T>
void PackPanelTransposed(ConstBlock<T> b, T* panel);

// A right factor packed once and used many times: recurrent weights over the
// steps of a sequence, filters over the rows of an image.
template <typename T>
class Panels {
 public:
  Panels() = default;
  Panels(Index depth, Index cols);

  void Pack(ConstBlock<T> b);            // b is depth x cols
  void PackTransposed(ConstBlock<T> b);  // b is cols x depth
  // C = A B, or C += A B.
  void Multiply(ConstBlock<T> a, Block<T> c, Write write) const;

  Index count() const { return (cols_ + kPanelWidth<T> - 1) / kPanelWidth<T>; }
  Index width(Index panel) const {
    return std::min(kPanelWidth<T>, cols_ - panel * kPanelWidth<T>);
  }
  const T* panel(Index i) const { return packed_.data() + i * depth_ * kPanelWidth<T>; }

 private:
  Index depth_ = 0;
  Index cols_ = 0;
  Vector<T> packed_;  // [panel][depth][kPanelWidth]
};

}  // namespace leeway::networks

#endif  // LEEWAY_CLIENT_NETWORKS_GEMM_H_
