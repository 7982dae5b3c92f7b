#include "client/networks/convolution.h"

#include <algorithm>
#include <utility>

namespace leeway::networks {
namespace {

// Image rows whose pixels are summed into the filters' gradient in one go: with
// 24 pixels of 32 channels to a row, what is read stays in L1.
constexpr Index kGradientRows = 4;

// Gives dy to the largest of the square of x at each of P's channels, and zero to
// the others. Finding the largest again is cheaper than noting where it was. In
// packets, because compilers do not turn comparisons that might trap into masks.
template <typename P, typename T>
void ToLargest(const T* x, const T* dy, T* dx, Index channels, Index row) {
  using Eigen::internal::pand, Eigen::internal::pandnot, Eigen::internal::pcmp_le;
  using Eigen::internal::ploadu, Eigen::internal::pmax, Eigen::internal::pstoreu;
  const P x0 = ploadu<P>(x), x1 = ploadu<P>(x + channels);
  const P x2 = ploadu<P>(x + row), x3 = ploadu<P>(x + row + channels);
  const P left_above = pcmp_le(x1, x0), left_below = pcmp_le(x3, x2);
  const P top = pcmp_le(pmax(x2, x3), pmax(x0, x1));
  const P error = ploadu<P>(dy);
  const P above = pand(top, error), below = pandnot(error, top);
  pstoreu(dx, pand(left_above, above));
  pstoreu(dx + channels, pandnot(above, left_above));
  pstoreu(dx + row, pand(left_below, below));
  pstoreu(dx + row + channels, pandnot(below, left_below));
}

}  // namespace

template <typename T>
Conv3x3<T>::Conv3x3(ImageSize in, Index filters)
    : in_(in), out_{in.height - 2, in.width - 2, filters} {
  if (Winograd3x3<T>::Suits(in, filters)) {
    winograd_.emplace(in, filters);
    return;
  }
  windows_ = {Panels<T>(9 * in.channels, filters), Panels<T>(9 * filters, in.channels),
              Vector<T>(9 * filters * in.channels),
              Vector<T>::Zero(out_.height * (out_.width + 4) * filters),
              Vector<T>(kGradientRows * out_.width * kPanelWidth<T>)};
}

template <typename T>
void Conv3x3<T>::Forward(const T* w, Extent extent, Rng*, const T* x, T* y) {
  if (winograd_) return winograd_->Forward(w, extent.rows(), x, y);
  const Index row = in_.width * in_.channels;
  const Index filters = out_.channels;
  const T* bias = w + 9 * in_.channels * filters;
  windows_.filters.Pack(View(w, 9 * in_.channels, filters));
  for (Index image = 0; image < extent.rows(); ++image) {
    for (Index i = 0; i < windows_.filters.count(); ++i) {
      const Index n = i * kPanelWidth<T>;
      for (Index line = 0; line < out_.height; ++line) {
        const Strip<T> windows{x + image * inputs() + line * row, in_.channels, 3, 3 * in_.channels,
                               row};
        T* to = y + image * outputs() + line * out_.width * filters + n;
        MultiplyPanel<T>(windows, out_.width, windows_.filters.panel(i), bias + n, 0,
                         View(to, out_.width, windows_.filters.width(i), filters));
      }
    }
  }
}

template <typename T>
void Conv3x3<T>::Backward(const T* w, Extent extent, const T* x, const T*, const T* dy, T* dx,
                          T* dw, Write write) {
  const Index pixels = out_.height * out_.width;
  SumRows<T>(View(dy, extent.rows() * pixels, out_.channels), dw + 9 * in_.channels * out_.channels,
             write);
  if (winograd_) return winograd_->Backward(w, extent.rows(), x, dy, dx, dw, write);
  if (dx) PackFlipped(w);
  for (Index image = 0; image < extent.rows(); ++image) {
    const T* error = dy + image * outputs();
    FilterGradient(x + image * inputs(), error, dw, image == 0 ? write : Write::kAdd);
    if (dx) InputGradient(error, dx + image * inputs());
  }
}

template <typename T>
void Conv3x3<T>::PackFlipped(const T* w) {
  const Index block = in_.channels * out_.channels;
  for (Index tap = 0; tap < 9; ++tap) {
    View(windows_.flat.data() + tap * block, out_.channels, in_.channels) =
        View(w + (8 - tap) * block, in_.channels, out_.channels).transpose();
  }
  windows_.flipped.Pack(View(std::as_const(windows_.flat).data(), 9 * out_.channels, in_.channels));
}

// dx is the correlation of dy, zero outside its image, with the flipped filters.
template <typename T>
void Conv3x3<T>::InputGradient(const T* dy, T* dx) {
  const Index filters = out_.channels;
  const Index row = (out_.width + 4) * filters;
  for (Index line = 0; line < out_.height; ++line) {
    std::copy_n(dy + line * out_.width * filters, out_.width * filters,
                windows_.padded.data() + line * row + 2 * filters);
  }
  for (Index i = 0; i < windows_.flipped.count(); ++i) {
    const Index n = i * kPanelWidth<T>;
    for (Index line = 0; line < in_.height; ++line) {
      // Rows line-2 .. line of dy, as far as they exist.
      const Index first = std::max<Index>(line - 2, 0);
      const Index last = std::min(line, out_.height - 1);
      const Index skipped = first - (line - 2);
      const Strip<T> windows{windows_.padded.data() + first * row, filters, last - first + 1,
                             3 * filters, row};
      MultiplyPanel<T>(windows, in_.width,
                       windows_.flipped.panel(i) + skipped * 3 * filters * kPanelWidth<T>, nullptr,
                       0,
                       View(dx + line * in_.width * in_.channels + n, in_.width,
                            windows_.flipped.width(i), in_.channels));
    }
  }
}

template <typename T>
void Conv3x3<T>::FilterGradient(const T* x, const T* dy, T* dw, Write write) {
  const Index row = in_.width * in_.channels;
  const Index filters = out_.channels;
  const Index run = 3 * in_.channels;
  for (Index line = 0; line < out_.height; line += kGradientRows) {
    const Index lines = std::min(kGradientRows, out_.height - line);
    const bool add = write == Write::kAdd || line > 0;
    for (Index i = 0; i < windows_.filters.count(); ++i) {
      const Index n = i * kPanelWidth<T>;
      PackPanel<T>(View(dy + line * out_.width * filters + n, lines * out_.width,
                        windows_.filters.width(i), filters),
                   windows_.panel.data());
      for (Index tap = 0; tap < 3; ++tap) {
        const Strip<T> windows{x + (line + tap) * row, in_.channels, lines, out_.width, row};
        T* to = dw + tap * run * filters + n;
        MultiplyPanelTransposedA<T>(windows, run, windows_.panel.data(), add ? to : nullptr,
                                    filters, View(to, run, windows_.filters.width(i), filters));
      }
    }
  }
}

template <typename T>
void MaxPool2<T>::Forward(const T*, Extent extent, Rng*, const T* x, T* y) {
  const Index channels = in_.channels;
  const Index row = in_.width * channels;
  for (Index image = 0; image < extent.rows(); ++image, x += inputs()) {
    for (Index line = 0; line < out_.height; ++line) {
      for (Index column = 0; column < out_.width; ++column, y += channels) {
        const T* square = x + 2 * line * row + 2 * column * channels;
        for (Index c = 0; c < channels; ++c) {
          const T top = std::max(square[c], square[channels + c]);
          const T bottom = std::max(square[row + c], square[row + channels + c]);
          y[c] = std::max(top, bottom);
        }
      }
    }
  }
}

template <typename T>
void MaxPool2<T>::Backward(const T*, Extent extent, const T* x, const T*, const T* dy, T* dx, T*,
                           Write) {
  const Index channels = in_.channels;
  const Index row = in_.width * channels;
  if (in_.height % 2 + in_.width % 2 > 0) std::fill_n(dx, extent.rows() * inputs(), T(0));
  for (Index image = 0; image < extent.rows(); ++image, x += inputs(), dx += inputs()) {
    for (Index line = 0; line < out_.height; ++line) {
      for (Index column = 0; column < out_.width; ++column, dy += channels) {
        const Index corner = 2 * line * row + 2 * column * channels;
        using P = typename Eigen::internal::packet_traits<T>::type;
        constexpr Index kLanes = Eigen::internal::packet_traits<T>::size;
        Index c = 0;
        for (; c + kLanes <= channels; c += kLanes) {
          ToLargest<P>(x + corner + c, dy + c, dx + corner + c, channels, row);
        }
        for (; c < channels; ++c) {
          ToLargest<T>(x + corner + c, dy + c, dx + corner + c, channels, row);
        }
      }
    }
  }
}

template class Conv3x3<float>;
template class Conv3x3<double>;
template class MaxPool2<float>;
template class MaxPool2<double>;

}  // namespace leeway::networks
