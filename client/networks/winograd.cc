#include "client/networks/winograd.h"

#include <algorithm>
#include <utility>

// Packets carry alignment attributes that templates drop; loads are unaligned.
#pragma GCC diagnostic ignored "-Wignored-attributes"

namespace leeway::networks {
namespace {

using Eigen::internal::padd;
using Eigen::internal::ploadu;
using Eigen::internal::pmadd;
using Eigen::internal::pmul;
using Eigen::internal::pset1;
using Eigen::internal::pstoreu;
using Eigen::internal::psub;

constexpr Index kTile = 4;    // pixels of an output tile in one direction
constexpr Index kWindow = 6;  // pixels that it reads
constexpr Index kPoints = kWindow * kWindow;
constexpr Index kBandTiles = 48;

template <typename T>
using Packet = typename Eigen::internal::packet_traits<T>::type;
template <typename T>
constexpr Index kLanes = Eigen::internal::packet_traits<T>::size;

// The points +-a and +-b, and what a polynomial through all points is divided by.
constexpr double kA = 0.75, kA2 = kA * kA, kA3 = kA2 * kA;
constexpr double kB = 1.5, kB2 = kB * kB, kB3 = kB2 * kB;
constexpr double kZeroScale = 1 / (kA2 * kB2);
constexpr double kAScale = 1 / (2 * kA2 * (kA2 - kB2));
constexpr double kBScale = 1 / (2 * kB2 * (kB2 - kA2));

// A constant in every lane.
template <typename P>
P Fill(double value) {
  return pset1<P>(static_cast<typename Eigen::internal::unpacket_traits<P>::type>(value));
}
template <typename P>
P Times(double factor, const P& x) {
  return pmul(Fill<P>(factor), x);
}
// factor * x + y
template <typename P>
P Scaled(double factor, const P& x, const P& y) {
  return pmadd(Fill<P>(factor), x, y);
}

// The transforms in one direction. Those of tiles and errors have integers of binary
// fractions as factors; a pair of points +-p shares its even and its odd part.
struct Inputs {
  static constexpr int kIn = 6, kOut = 6;
  template <typename P>
  static void Apply(const P* d, P* v) {
    Pair(kA, kB2, d, v + 1);
    Pair(kB, kA2, d, v + 3);
    v[0] = Scaled(kA2 * kB2, d[0], Scaled(-(kA2 + kB2), d[2], d[4]));
    v[5] = Scaled(kA2 * kB2, d[1], Scaled(-(kA2 + kB2), d[3], d[5]));
  }
  template <typename P>
  static void Pair(double point, double other_squared, const P* d, P* v) {
    const P even = Scaled(-other_squared, d[2], d[4]);
    const P odd = Times(point, Scaled(-other_squared, d[1], d[3]));
    v[0] = padd(even, odd);
    v[1] = psub(even, odd);
  }
};

struct InputsAdjoint {
  static constexpr int kIn = 6, kOut = 6;
  template <typename P>
  static void Apply(const P* v, P* d) {
    const P even_a = padd(v[1], v[2]), odd_a = psub(v[1], v[2]);
    const P even_b = padd(v[3], v[4]), odd_b = psub(v[3], v[4]);
    d[0] = Times(kA2 * kB2, v[0]);
    d[1] = Scaled(-kA * kB2, odd_a, Scaled(-kA2 * kB, odd_b, Times(kA2 * kB2, v[5])));
    d[2] = Scaled(-(kA2 + kB2), v[0], Scaled(-kB2, even_a, Times(-kA2, even_b)));
    d[3] = Scaled(kA, odd_a, Scaled(kB, odd_b, Times(-(kA2 + kB2), v[5])));
    d[4] = padd(v[0], padd(even_a, even_b));
    d[5] = v[5];
  }
};

struct Outputs {
  static constexpr int kIn = 6, kOut = 4;
  template <typename P>
  static void Apply(const P* m, P* y) {
    const P even_a = padd(m[1], m[2]), odd_a = psub(m[1], m[2]);
    const P even_b = padd(m[3], m[4]), odd_b = psub(m[3], m[4]);
    y[0] = padd(m[0], padd(even_a, even_b));
    y[1] = Scaled(kA, odd_a, Times(kB, odd_b));
    y[2] = Scaled(kA2, even_a, Times(kB2, even_b));
    y[3] = Scaled(kA3, odd_a, Scaled(kB3, odd_b, m[5]));
  }
};

struct OutputsAdjoint {
  static constexpr int kIn = 4, kOut = 6;
  template <typename P>
  static void Apply(const P* y, P* e) {
    e[0] = y[0];
    Pair(kA, y, e + 1);
    Pair(kB, y, e + 3);
    e[5] = y[3];
  }
  template <typename P>
  static void Pair(double point, const P* y, P* e) {
    const P even = Scaled(point * point, y[2], y[0]);
    const P odd = Times(point, Scaled(point * point, y[3], y[1]));
    e[0] = padd(even, odd);
    e[1] = psub(even, odd);
  }
};

struct Filters {
  static constexpr int kIn = 3, kOut = 6;
  template <typename P>
  static void Apply(const P* g, P* u) {
    u[0] = Times(kZeroScale, g[0]);
    Pair(kA, kAScale, g, u + 1);
    Pair(kB, kBScale, g, u + 3);
    u[5] = g[2];
  }
  template <typename P>
  static void Pair(double point, double scale, const P* g, P* u) {
    const P even = Scaled(scale * point * point, g[2], Times(scale, g[0]));
    const P odd = Times(scale * point, g[1]);
    u[0] = padd(even, odd);
    u[1] = psub(even, odd);
  }
};

struct FiltersAdjoint {
  static constexpr int kIn = 6, kOut = 3;
  template <typename P>
  static void Apply(const P* u, P* g) {
    const P even_a = padd(u[1], u[2]), odd_a = psub(u[1], u[2]);
    const P even_b = padd(u[3], u[4]), odd_b = psub(u[3], u[4]);
    g[0] = Scaled(kZeroScale, u[0], Scaled(kAScale, even_a, Times(kBScale, even_b)));
    g[1] = Scaled(kAScale * kA, odd_a, Times(kBScale * kB, odd_b));
    g[2] = Scaled(kAScale * kA2, even_a, Scaled(kBScale * kB2, even_b, u[5]));
  }
};

// Applies a transform to columns, then to rows. `read(i, j)` and `write(i, j, value)`.
template <typename P, typename Transform, typename Read, typename Write>
inline void BothWays(const Read& read, const Write& write) {
  constexpr int kIn = Transform::kIn, kOut = Transform::kOut;
  P half[kOut][kIn];
#pragma GCC unroll 6
  for (int j = 0; j < kIn; ++j) {
    P column[kIn], changed[kOut];
#pragma GCC unroll 6
    for (int i = 0; i < kIn; ++i) column[i] = read(i, j);
    Transform::Apply(column, changed);
#pragma GCC unroll 6
    for (int i = 0; i < kOut; ++i) half[i][j] = changed[i];
  }
#pragma GCC unroll 6
  for (int i = 0; i < kOut; ++i) {
    P changed[kOut];
    Transform::Apply(half[i], changed);
#pragma GCC unroll 6
    for (int j = 0; j < kOut; ++j) write(i, j, changed[j]);
  }
}

Index Tiles(Index pixels) { return (pixels + kTile - 1) / kTile; }

}  // namespace

template <typename T>
bool Winograd3x3<T>::Suits(ImageSize in, Index filters) {
  const Index height = in.height - 2, width = in.width - 2;
  if (in.channels % 16 != 0 || filters % 32 != 0) return false;
  // At most half of the plain products, those beyond the image's edge included.
  return 2 * kPoints * Tiles(height) * Tiles(width) <= 9 * height * width;
}

template <typename T>
Winograd3x3<T>::Winograd3x3(ImageSize in, Index filters)
    : in_(in),
      out_{in.height - 2, in.width - 2, filters},
      across_(Tiles(out_.width)),
      down_(Tiles(out_.height)),
      band_rows_(std::clamp<Index>(kBandTiles / across_, 1, down_)),
      points_(kPoints * in.channels * filters),
      packed_(kPoints, Panels<T>(in.channels, filters)),
      packed_back_(kPoints, Panels<T>(filters, in.channels)),
      inputs_(kPoints * band_rows_ * across_ * in.channels),
      errors_(kPoints * band_rows_ * across_ * filters),
      products_(kPoints * band_rows_ * across_ * std::max(filters, in.channels)) {}

template <typename T>
template <typename Body>
void Winograd3x3<T>::ForBands(const Body& body) const {
  for (Index row = 0; row < down_; row += band_rows_) {
    body(Band{row, std::min(band_rows_, down_ - row)});
  }
}

template <typename T>
void Winograd3x3<T>::TransformFilters(const T* w) {
  using P = Packet<T>;
  const Index block = in_.channels * out_.channels;
  for (Index i = 0; i < block; i += kLanes<T>) {
    BothWays<P, Filters>([&](int r, int c) { return ploadu<P>(w + (3 * r + c) * block + i); },
                         [&](int r, int c, const P& value) {
                           pstoreu(points_.data() + (kWindow * r + c) * block + i, value);
                         });
  }
}

template <typename T>
void Winograd3x3<T>::TransformInputs(const T* x, Band band) {
  using P = Packet<T>;
  const Index channels = in_.channels, row = in_.width * channels;
  const Index step = band.rows * across_ * channels;  // from point to point
  T* out = inputs_.data();
  for (Index line = kTile * band.first; line < kTile * (band.first + band.rows); line += kTile) {
    for (Index column = 0; column < kTile * across_; column += kTile) {
      const Index height = std::min(kWindow, in_.height - line);
      const Index width = std::min(kWindow, in_.width - column);
      const bool whole = height == kWindow && width == kWindow;
      const T* corner = x + line * row + column * channels;
      for (Index c = 0; c < channels; c += kLanes<T>, out += kLanes<T>) {
        const auto read = [&](int i, int j) {
          return ploadu<P>(corner + i * row + j * channels + c);
        };
        const auto write = [&](int i, int j, const P& value) {
          pstoreu(out + (kWindow * i + j) * step, value);
        };
        if (whole) {
          BothWays<P, Inputs>(read, write);
        } else {
          BothWays<P, Inputs>(
              [&](int i, int j) { return i < height && j < width ? read(i, j) : Fill<P>(0); },
              write);
        }
      }
    }
  }
}

template <typename T>
void Winograd3x3<T>::TransformErrors(const T* dy, Band band) {
  using P = Packet<T>;
  const Index filters = out_.channels, row = out_.width * filters;
  const Index tiles = band.rows * across_;
  Index tile = 0;
  for (Index line = kTile * band.first; line < kTile * (band.first + band.rows); line += kTile) {
    for (Index column = 0; column < kTile * across_; column += kTile, ++tile) {
      const Index height = std::min(kTile, out_.height - line);
      const Index width = std::min(kTile, out_.width - column);
      const bool whole = height == kTile && width == kTile;
      const T* corner = dy + line * row + column * filters;
      for (Index f = 0; f < filters; f += kLanes<T>) {
        const Index panel = f / kPanelWidth<T>;
        T* out = errors_.data() + (panel * tiles + tile) * kPanelWidth<T> + f % kPanelWidth<T>;
        const auto read = [&](int i, int j) {
          return ploadu<P>(corner + i * row + j * filters + f);
        };
        const auto write = [&](int i, int j, const P& value) {
          pstoreu(out + (kWindow * i + j) * tiles * filters, value);
        };
        if (whole) {
          BothWays<P, OutputsAdjoint>(read, write);
        } else {
          BothWays<P, OutputsAdjoint>(
              [&](int i, int j) { return i < height && j < width ? read(i, j) : Fill<P>(0); },
              write);
        }
      }
    }
  }
}

template <typename T>
void Winograd3x3<T>::WriteOutputs(Band band, const T* bias, T* y) {
  using P = Packet<T>;
  const Index filters = out_.channels, row = out_.width * filters;
  const Index step = band.rows * across_ * filters;
  const T* in = products_.data();
  for (Index line = kTile * band.first; line < kTile * (band.first + band.rows); line += kTile) {
    for (Index column = 0; column < kTile * across_; column += kTile) {
      const Index height = std::min(kTile, out_.height - line);
      const Index width = std::min(kTile, out_.width - column);
      T* corner = y + line * row + column * filters;
      for (Index f = 0; f < filters; f += kLanes<T>, in += kLanes<T>) {
        const P shift = ploadu<P>(bias + f);
        BothWays<P, Outputs>([&](int i, int j) { return ploadu<P>(in + (kWindow * i + j) * step); },
                             [&](int i, int j, const P& value) {
                               if (i < height && j < width) {
                                 pstoreu(corner + i * row + j * filters + f, padd(value, shift));
                               }
                             });
      }
    }
  }
}

template <typename T>
void Winograd3x3<T>::AddInputGradient(Band band, T* dx) {
  using P = Packet<T>;
  const Index channels = in_.channels, row = in_.width * channels;
  const Index step = band.rows * across_ * channels;
  const T* in = products_.data();
  for (Index line = kTile * band.first; line < kTile * (band.first + band.rows); line += kTile) {
    for (Index column = 0; column < kTile * across_; column += kTile) {
      const Index height = std::min(kWindow, in_.height - line);
      const Index width = std::min(kWindow, in_.width - column);
      T* corner = dx + line * row + column * channels;
      for (Index c = 0; c < channels; c += kLanes<T>, in += kLanes<T>) {
        BothWays<P, InputsAdjoint>(
            [&](int i, int j) { return ploadu<P>(in + (kWindow * i + j) * step); },
            [&](int i, int j, const P& value) {
              if (i >= height || j >= width) return;
              T* to = corner + i * row + j * channels + c;
              pstoreu(to, padd(ploadu<P>(to), value));
            });
      }
    }
  }
}

template <typename T>
void Winograd3x3<T>::MultiplyForward(Index tiles) {
  const Index channels = in_.channels, filters = out_.channels;
  for (Index point = 0; point < kPoints; ++point) {
    packed_[static_cast<size_t>(point)].Multiply(
        View(std::as_const(inputs_).data() + point * tiles * channels, tiles, channels),
        View(products_.data() + point * tiles * filters, tiles, filters), Write::kSet);
  }
}

template <typename T>
void Winograd3x3<T>::MultiplyBackward(Index tiles) {
  const Index channels = in_.channels, filters = out_.channels;
  for (Index point = 0; point < kPoints; ++point) {
    const Strip<T> errors{errors_.data() + point * tiles * filters, kPanelWidth<T>,
                          filters / kPanelWidth<T>, kPanelWidth<T>, tiles * kPanelWidth<T>};
    const Panels<T>& panels = packed_back_[static_cast<size_t>(point)];
    for (Index i = 0; i < panels.count(); ++i) {
      T* to = products_.data() + point * tiles * channels + i * kPanelWidth<T>;
      MultiplyPanel<T>(errors, tiles, panels.panel(i), nullptr, 0,
                       View(to, tiles, panels.width(i), channels));
    }
  }
}

template <typename T>
void Winograd3x3<T>::AddPointGradient(Index tiles, bool first) {
  const Index channels = in_.channels, filters = out_.channels;
  for (Index point = 0; point < kPoints; ++point) {
    const Strip<T> inputs{inputs_.data() + point * tiles * channels, channels, 1, tiles, 0};
    for (Index n = 0; n < filters; n += kPanelWidth<T>) {
      T* to = points_.data() + point * channels * filters + n;
      MultiplyPanelTransposedA<T>(inputs, channels, errors_.data() + (point * filters + n) * tiles,
                                  first ? nullptr : to, filters,
                                  View(to, channels, kPanelWidth<T>, filters));
    }
  }
}

template <typename T>
void Winograd3x3<T>::WriteFilterGradient(T* dw, Write write) const {
  using P = Packet<T>;
  const Index block = in_.channels * out_.channels;
  for (Index i = 0; i < block; i += kLanes<T>) {
    BothWays<P, FiltersAdjoint>(
        [&](int r, int c) { return ploadu<P>(points_.data() + (kWindow * r + c) * block + i); },
        [&](int r, int c, const P& value) {
          T* to = dw + (3 * r + c) * block + i;
          pstoreu(to, write == Write::kAdd ? padd(ploadu<P>(to), value) : value);
        });
  }
}

template <typename T>
void Winograd3x3<T>::Forward(const T* w, Index images, const T* x, T* y) {
  const Index block = in_.channels * out_.channels;
  TransformFilters(w);
  for (Index point = 0; point < kPoints; ++point) {
    packed_[static_cast<size_t>(point)].Pack(
        View(std::as_const(points_).data() + point * block, in_.channels, out_.channels));
  }
  for (Index image = 0; image < images; ++image) {
    ForBands([&](Band band) {
      TransformInputs(x + image * in_.size(), band);
      MultiplyForward(band.rows * across_);
      WriteOutputs(band, w + 9 * block, y + image * out_.size());
    });
  }
}

template <typename T>
void Winograd3x3<T>::Backward(const T* w, Index images, const T* x, const T* dy, T* dx, T* dw,
                              Write write) {
  const Index block = in_.channels * out_.channels;
  if (dx) {
    TransformFilters(w);
    for (Index point = 0; point < kPoints; ++point) {
      packed_back_[static_cast<size_t>(point)].PackTransposed(
          View(std::as_const(points_).data() + point * block, in_.channels, out_.channels));
    }
    std::fill_n(dx, images * in_.size(), T(0));
  }
  for (Index image = 0; image < images; ++image) {
    ForBands([&](Band band) {
      const Index tiles = band.rows * across_;
      TransformInputs(x + image * in_.size(), band);
      TransformErrors(dy + image * out_.size(), band);
      AddPointGradient(tiles, image == 0 && band.first == 0);
      if (!dx) return;
      MultiplyBackward(tiles);
      AddInputGradient(band, dx + image * in_.size());
    });
  }
  WriteFilterGradient(dw, write);
}

template class Winograd3x3<float>;
template class Winograd3x3<double>;

}  // namespace leeway::networks
