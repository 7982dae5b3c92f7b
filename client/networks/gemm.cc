#include "client/networks/gemm.h"

#include <algorithm>

// Packets carry alignment attributes that templates drop; loads are unaligned.
#pragma GCC diagnostic ignored "-Wignored-attributes"

namespace leeway::networks {
namespace {

// A tile of kTileRows x kPanelWidth sums stays in registers: 12 of AVX2's 16.
constexpr Index kTileRows = 6;
// Depth of a panel that is packed on the fly: 16 KiB of floats, half of L1.
constexpr Index kDepth = 256;
// Panels packed together, so that a row of a wide matrix is visited once and not
// once per panel; and rows of the left factor that meet them. Each takes about
// 100 KiB of stack, and both fit into L2.
constexpr Index kBlockPanels = 8;
constexpr Index kBlockRows = 96;

template <typename T>
using Packet = typename Eigen::internal::packet_traits<T>::type;
template <typename T>
constexpr Index kLanes = Eigen::internal::packet_traits<T>::size;

// What the left factor meets: kPanelWidth values for each k, `stride` apart. Packed,
// they follow each other.
template <typename T>
struct Right {
  const T* data;
  Index stride = kPanelWidth<T>;
};

// c = start + a * panel for kM rows. kAcross: the strip is transposed.
template <typename T, int kM, bool kAcross>
void Tile(const Strip<T>& a, Right<T> panel, const T* start, Index start_stride, T* c,
          Index c_stride) {
  using Eigen::internal::ploadu;
  using Eigen::internal::pmadd;
  using Eigen::internal::pset1;
  using Eigen::internal::pstoreu;
  using P = Packet<T>;
  P left[kM];
  P right[kM];
#pragma GCC unroll 8
  for (int i = 0; i < kM; ++i) {
    left[i] = start ? ploadu<P>(start + i * start_stride) : pset1<P>(T(0));
    right[i] = start ? ploadu<P>(start + i * start_stride + kLanes<T>) : pset1<P>(T(0));
  }
  for (Index s = 0; s < a.segments; ++s) {
    const T* p = a.data + s * a.jump;
    for (Index k = 0; k < a.length; ++k) {
      const P b0 = ploadu<P>(panel.data);
      const P b1 = ploadu<P>(panel.data + kLanes<T>);
#pragma GCC unroll 8
      for (int i = 0; i < kM; ++i) {
        const P x = pset1<P>(kAcross ? p[i] : p[i * a.stride]);
        left[i] = pmadd(x, b0, left[i]);
        right[i] = pmadd(x, b1, right[i]);
      }
      p += kAcross ? a.stride : 1;
      panel.data += panel.stride;
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kM; ++i) {
    pstoreu(c + i * c_stride, left[i]);
    pstoreu(c + i * c_stride + kLanes<T>, right[i]);
  }
}

template <typename T, bool kAcross>
void TileOf(Index rows, const Strip<T>& a, Right<T> panel, const T* start, Index start_stride, T* c,
            Index c_stride) {
  switch (rows) {
    case 1:
      return Tile<T, 1, kAcross>(a, panel, start, start_stride, c, c_stride);
    case 2:
      return Tile<T, 2, kAcross>(a, panel, start, start_stride, c, c_stride);
    case 3:
      return Tile<T, 3, kAcross>(a, panel, start, start_stride, c, c_stride);
    case 4:
      return Tile<T, 4, kAcross>(a, panel, start, start_stride, c, c_stride);
    case 5:
      return Tile<T, 5, kAcross>(a, panel, start, start_stride, c, c_stride);
    default:
      return Tile<T, 6, kAcross>(a, panel, start, start_stride, c, c_stride);
  }
}

// A tile narrower than the panel, through a full-width copy.
template <typename T, bool kAcross>
void NarrowTile(Index rows, const Strip<T>& a, Right<T> panel, const T* start, Index start_stride,
                T* c, Index c_stride, Index width) {
  T tile[kTileRows * kPanelWidth<T>] = {};
  for (Index i = 0; start && i < rows; ++i) {
    std::copy_n(start + i * start_stride, width, tile + i * kPanelWidth<T>);
  }
  TileOf<T, kAcross>(rows, a, panel, tile, kPanelWidth<T>, tile, kPanelWidth<T>);
  for (Index i = 0; i < rows; ++i) {
    std::copy_n(tile + i * kPanelWidth<T>, width, c + i * c_stride);
  }
}

template <typename T, bool kAcross>
void PanelProduct(Strip<T> a, Index rows, Right<T> panel, const T* start, Index start_stride,
                  Block<T>& c) {
  // Tiles of nearly equal height keep the arithmetic units busier than full
  // tiles and a rest: 20 rows are 5+5+5+5.
  const Index tiles = (rows + kTileRows - 1) / kTileRows;
  T* out = c.data();
  for (Index tile = 0; tile < tiles; ++tile) {
    const Index height = rows / tiles + (tile < rows % tiles ? 1 : 0);
    if (c.cols() == kPanelWidth<T>) {
      TileOf<T, kAcross>(height, a, panel, start, start_stride, out, c.outerStride());
    } else {
      NarrowTile<T, kAcross>(height, a, panel, start, start_stride, out, c.outerStride(), c.cols());
    }
    a.data += height * (kAcross ? 1 : a.stride);
    out += height * c.outerStride();
    if (start) start += height * start_stride;
  }
}

// The sums' beginnings for a block of C: what is there (kAdd or a later part of
// the depth), the bias, or zero.
template <typename T>
struct Start {
  const T* data;
  Index stride;
};
template <typename T>
Start<T> StartOf(const Block<T>& c, Index row, Index col, bool add, const T* bias) {
  if (add) return {c.data() + row * c.outerStride() + col, c.outerStride()};
  if (bias) return {bias + col, 0};
  return {nullptr, 0};
}

enum class Factor { kPlain, kTransposed };

// Packs the block of B at depth k0 .. k0+k and columns n0 .. n0+n into panels.
template <typename T, Factor kB>
void PackBlock(const ConstBlock<T>& b, Index k0, Index k, Index n0, Index n, T* panels) {
  for (Index j = 0; j < n; j += kPanelWidth<T>) {
    const Index width = std::min(kPanelWidth<T>, n - j);
    T* panel = panels + j * k;
    if constexpr (kB == Factor::kPlain) {
      PackPanel<T>(View(b.data() + k0 * b.outerStride() + n0 + j, k, width, b.outerStride()),
                   panel);
    } else {
      PackPanelTransposed<T>(
          View(b.data() + (n0 + j) * b.outerStride() + k0, width, k, b.outerStride()), panel);
    }
  }
}

// Where a product stands: the part of the depth, the columns, and whether C
// already holds a part of the sum.
struct Step {
  Index k0, k, n0, n;
  bool add;
};

// C's columns n0 .. n0+n, plus A's depth k0 .. k0+k times the packed panels.
template <typename T, bool kAcross>
void BlockProduct(const ConstBlock<T>& a, const Step& at, const T* panels, const T* bias,
                  Block<T>& c) {
  alignas(64) T copy[kAcross ? kDepth * kBlockRows : 1];
  const Index stride = a.outerStride();
  for (Index m0 = 0; m0 < c.rows(); m0 += kBlockRows) {
    const Index m = std::min(kBlockRows, c.rows() - m0);
    Strip<T> strip{a.data() + (kAcross ? at.k0 * stride + m0 : m0 * stride + at.k0), stride, 1,
                   at.k, 0};
    if (kAcross && at.n == kBlockPanels * kPanelWidth<T>) {
      // Rows of a wide matrix often lie a power of two apart, where they would
      // share few cache sets.
      View(copy, at.k, m) = View(strip.data, at.k, m, stride);
      strip.data = copy;
      strip.stride = m;
    }
    for (Index j = 0; j < at.n; j += kPanelWidth<T>) {
      const Index width = std::min(kPanelWidth<T>, at.n - j);
      const Start<T> start = StartOf(c, m0, at.n0 + j, at.add, bias);
      Block<T> part = View(c.data() + m0 * c.outerStride() + at.n0 + j, m, width, c.outerStride());
      PanelProduct<T, kAcross>(strip, m, {panels + j * at.k}, start.data, start.stride, part);
    }
  }
}

// kM x kN sums of products along rows of both factors, a lane for each k modulo the
// width of a packet; then the lanes are added.
template <typename T, int kM, int kN>
void DotTile(const ConstBlock<T>& a, Index row, const ConstBlock<T>& b, Index col, Write write,
             Block<T>& c) {
  using Eigen::internal::ploadu;
  using P = Packet<T>;
  const T* left = a.data() + row * a.outerStride();
  const T* right = b.data() + col * b.outerStride();
  P sums[kM][kN];
  for (auto& line : sums) std::fill_n(line, kN, Eigen::internal::pset1<P>(T(0)));
  const Index whole = a.cols() / kLanes<T> * kLanes<T>;
  for (Index k = 0; k < whole; k += kLanes<T>) {
    P x[kM];
#pragma GCC unroll 8
    for (int i = 0; i < kM; ++i) x[i] = ploadu<P>(left + i * a.outerStride() + k);
#pragma GCC unroll 8
    for (int j = 0; j < kN; ++j) {
      const P y = ploadu<P>(right + j * b.outerStride() + k);
#pragma GCC unroll 8
      for (int i = 0; i < kM; ++i) sums[i][j] = Eigen::internal::pmadd(x[i], y, sums[i][j]);
    }
  }
  for (int i = 0; i < kM; ++i) {
    for (int j = 0; j < kN; ++j) {
      T sum = Eigen::internal::predux(sums[i][j]);
      for (Index k = whole; k < a.cols(); ++k) {
        sum += left[i * a.outerStride() + k] * right[j * b.outerStride() + k];
      }
      T& out = c(row + i, col + j);
      out = write == Write::kAdd ? out + sum : sum;
    }
  }
}

template <typename T, int kN>
void DotColumns(const ConstBlock<T>& a, const ConstBlock<T>& b, Index col, Write write,
                Block<T>& c) {
  Index row = 0;
  for (; row + 2 <= c.rows(); row += 2) DotTile<T, 2, kN>(a, row, b, col, write, c);
  if (row < c.rows()) DotTile<T, 1, kN>(a, row, b, col, write, c);
}

// A B^T with few columns, of which a panel would leave many lanes empty.
template <typename T>
void DotProducts(const ConstBlock<T>& a, const ConstBlock<T>& b, Block<T>& c, Write write) {
  constexpr Index kMost = 5;
  const Index groups = (c.cols() + kMost - 1) / kMost;
  Index col = 0;
  for (Index group = 0; group < groups; ++group) {
    const Index width = c.cols() / groups + (group < c.cols() % groups ? 1 : 0);
    switch (width) {
      case 1:
        DotColumns<T, 1>(a, b, col, write, c);
        break;
      case 2:
        DotColumns<T, 2>(a, b, col, write, c);
        break;
      case 3:
        DotColumns<T, 3>(a, b, col, write, c);
        break;
      case 4:
        DotColumns<T, 4>(a, b, col, write, c);
        break;
      default:
        DotColumns<T, 5>(a, b, col, write, c);
    }
    col += width;
  }
}

// A^T B with few rows, for which packing B would cost as much as the products.
template <typename T>
void ThinProduct(const ConstBlock<T>& a, const ConstBlock<T>& b, Block<T>& c, Write write) {
  alignas(64) T panel[kDepth * kPanelWidth<T>];
  for (Index k0 = 0; k0 < a.rows(); k0 += kDepth) {
    const Index k = std::min(kDepth, a.rows() - k0);
    const Strip<T> strip{a.data() + k0 * a.outerStride(), a.outerStride(), 1, k, 0};
    for (Index n0 = 0; n0 < c.cols(); n0 += kPanelWidth<T>) {
      const Index width = std::min(kPanelWidth<T>, c.cols() - n0);
      Right<T> right{b.data() + k0 * b.outerStride() + n0, b.outerStride()};
      if (width < kPanelWidth<T>) {  // the last one, beyond which there is nothing to read
        PackPanel<T>(View(right.data, k, width, right.stride), panel);
        right = {panel};
      }
      const Start<T> start = StartOf<T>(c, 0, n0, write == Write::kAdd || k0 > 0, nullptr);
      Block<T> part = View(c.data() + n0, c.rows(), width, c.outerStride());
      PanelProduct<T, true>(strip, c.rows(), right, start.data, start.stride, part);
    }
  }
}

template <typename T, Factor kA, Factor kB>
void Product(const ConstBlock<T>& a, const ConstBlock<T>& b, Block<T>& c, Write write,
             const T* bias) {
  constexpr bool kAcross = kA == Factor::kTransposed;
  constexpr Index kBlockCols = kBlockPanels * kPanelWidth<T>;
  alignas(64) T panels[kDepth * kBlockCols];
  const Index depth = kAcross ? a.rows() : a.cols();
  for (Index k0 = 0; k0 < depth; k0 += kDepth) {
    for (Index n0 = 0; n0 < c.cols(); n0 += kBlockCols) {
      const Step step{k0, std::min(kDepth, depth - k0), n0, std::min(kBlockCols, c.cols() - n0),
                      write == Write::kAdd || k0 > 0};
      PackBlock<T, kB>(b, step.k0, step.k, step.n0, step.n, panels);
      BlockProduct<T, kAcross>(a, step, panels, bias, c);
    }
  }
}

}  // namespace

template <typename T>
void Multiply(ConstBlock<T> a, ConstBlock<T> b, Block<T> c, Write write, const T* bias) {
  Product<T, Factor::kPlain, Factor::kPlain>(a, b, c, write, bias);
}

template <typename T>
void MultiplyTransposedA(ConstBlock<T> a, ConstBlock<T> b, Block<T> c, Write write) {
  constexpr Index kFewRows = 2 * kTileRows;
  if (c.rows() <= kFewRows) return ThinProduct(a, b, c, write);
  Product<T, Factor::kTransposed, Factor::kPlain>(a, b, c, write, nullptr);
}

template <typename T>
void MultiplyTransposedB(ConstBlock<T> a, ConstBlock<T> b, Block<T> c, Write write) {
  const bool few = 4 * c.cols() <= 3 * kPanelWidth<T> && a.cols() >= 8 * kLanes<T>;
  if (few) return DotProducts(a, b, c, write);
  Product<T, Factor::kPlain, Factor::kTransposed>(a, b, c, write, nullptr);
}

template <typename T>
void SumRows(ConstBlock<T> a, T* total, Write write) {
  auto sum = View(total, 1, a.cols());
  if (write == Write::kSet) sum.setZero();
  for (Index row = 0; row < a.rows(); ++row) sum += a.row(row);
}

template <typename T>
void MultiplyPanel(const Strip<T>& a, Index rows, const T* panel, const T* start,
                   Index start_stride, Block<T> c) {
  PanelProduct<T, false>(a, rows, {panel}, start, start_stride, c);
}

template <typename T>
void MultiplyPanelTransposedA(const Strip<T>& a, Index rows, const T* panel, const T* start,
                              Index start_stride, Block<T> c) {
  PanelProduct<T, true>(a, rows, {panel}, start, start_stride, c);
}

template <typename T>
void PackPanel(ConstBlock<T> b, T* panel) {
  if (b.cols() == kPanelWidth<T>) {
    for (Index k = 0; k < b.rows(); ++k) {
      const T* row = b.data() + k * b.outerStride();
      T* to = panel + k * kPanelWidth<T>;
      using P = Packet<T>;
      Eigen::internal::pstoreu(to, Eigen::internal::ploadu<P>(row));
      Eigen::internal::pstoreu(to + kLanes<T>, Eigen::internal::ploadu<P>(row + kLanes<T>));
    }
    return;
  }
  auto out = View(panel, b.rows(), kPanelWidth<T>);
  out.leftCols(b.cols()) = b;
  out.rightCols(kPanelWidth<T> - b.cols()).setZero();
}

template <typename T>
void PackPanelTransposed(ConstBlock<T> b, T* panel) {
  auto out = View(panel, b.cols(), kPanelWidth<T>);
  const Index whole = b.rows() == kPanelWidth<T> ? b.cols() / kLanes<T> * kLanes<T> : 0;
  for (Index k = 0; k < whole; k += kLanes<T>) {
    for (Index half = 0; half < 2; ++half) {
      Eigen::internal::PacketBlock<Packet<T>, kLanes<T>> square;
      for (Index i = 0; i < kLanes<T>; ++i) {
        square.packet[i] = Eigen::internal::ploadu<Packet<T>>(
            b.data() + (half * kLanes<T> + i) * b.outerStride() + k);
      }
      Eigen::internal::ptranspose(square);
      for (Index i = 0; i < kLanes<T>; ++i) {
        Eigen::internal::pstoreu(panel + (k + i) * kPanelWidth<T> + half * kLanes<T>,
                                 square.packet[i]);
      }
    }
  }
  const Index rest = b.cols() - whole;
  out.bottomRows(rest).leftCols(b.rows()) = b.rightCols(rest).transpose();
  out.bottomRows(rest).rightCols(kPanelWidth<T> - b.rows()).setZero();
}

template <typename T>
Panels<T>::Panels(Index depth, Index cols) : depth_(depth), cols_(cols) {
  packed_.resize(count() * depth * kPanelWidth<T>);
}

template <typename T>
void Panels<T>::Pack(ConstBlock<T> b) {
  for (Index i = 0; i < count(); ++i) {
    PackPanel<T>(View(b.data() + i * kPanelWidth<T>, depth_, width(i), b.outerStride()),
                 packed_.data() + i * depth_ * kPanelWidth<T>);
  }
}

template <typename T>
void Panels<T>::PackTransposed(ConstBlock<T> b) {
  for (Index i = 0; i < count(); ++i) {
    PackPanelTransposed<T>(
        View(b.data() + i * kPanelWidth<T> * b.outerStride(), width(i), depth_, b.outerStride()),
        packed_.data() + i * depth_ * kPanelWidth<T>);
  }
}

template <typename T>
void Panels<T>::Multiply(ConstBlock<T> a, Block<T> c, Write write) const {
  const Strip<T> strip{a.data(), a.outerStride(), 1, depth_, 0};
  for (Index i = 0; i < count(); ++i) {
    const Index n0 = i * kPanelWidth<T>;
    const Start<T> start = StartOf<T>(c, 0, n0, write == Write::kAdd, nullptr);
    MultiplyPanel<T>(strip, c.rows(), panel(i), start.data, start.stride,
                     View(c.data() + n0, c.rows(), width(i), c.outerStride()));
  }
}

#define LEEWAY_INSTANTIATE(T)                                                                  \
  template void Multiply<T>(ConstBlock<T>, ConstBlock<T>, Block<T>, Write, const T*);          \
  template void MultiplyTransposedA<T>(ConstBlock<T>, ConstBlock<T>, Block<T>, Write);         \
  template void MultiplyTransposedB<T>(ConstBlock<T>, ConstBlock<T>, Block<T>, Write);         \
  template void SumRows<T>(ConstBlock<T>, T*, Write);                                          \
  template void MultiplyPanel<T>(const Strip<T>&, Index, const T*, const T*, Index, Block<T>); \
  template void MultiplyPanelTransposedA<T>(const Strip<T>&, Index, const T*, const T*, Index, \
                                            Block<T>);                                         \
  template void PackPanel<T>(ConstBlock<T>, T*);                                               \
  template void PackPanelTransposed<T>(ConstBlock<T>, T*);                                     \
  template class Panels<T>;
LEEWAY_INSTANTIATE(float)
LEEWAY_INSTANTIATE(double)
#undef LEEWAY_INSTANTIATE

}  // namespace leeway::networks
