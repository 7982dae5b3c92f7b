// 3x3 correlation with a quarter of the multiplications: F(4x4, 3x3) of Lavin and Gray,
// "Fast algorithms for convolutional neural networks" (2015). An output tile of 4x4 pixels
// takes 36 products for each pair of channel and filter instead of 144: tile and filter
// are transformed, multiplied point by point, and transformed back. The gradients are the
// adjoint of the same steps, so they are those of what Forward computes.
//
// The points are 0, +-3/4, +-3/2 and infinity: exact in binary, and with half the error of
// the usual +-1 and +-2. Results differ from the plain sum by about 5e-7 of its norm in float. The
// order of additions depends on the shapes alone. One thread at a time.
#ifndef LEEWAY_CLIENT_NETWORKS_WINOGRAD_H_
#define LEEWAY_CLIENT_NETWORKS_WINOGRAD_H_

#include <vector>

#include "client/networks/gemm.h"
#include "client/networks/image_size.h"

namespace leeway::networks {

template <typename T>
class Winograd3x3 {
 public:
  // Whether this is the way to convolve: with few channels the transforms would cost more
  // than they save. An answer for all CPUs, because bits depend on it.
  static bool Suits(ImageSize in, Index filters);

  Winograd3x3(ImageSize in, Index filters);

  // w: filters [3, 3, channels, filters], then bias; x and y: images one after the other.
  void Forward(const T* w, Index images, const T* x, T* y);
  // The gradients in the filters and, unless dx is null, in x. The bias is the caller's.
  void Backward(const T* w, Index images, const T* x, const T* dy, T* dx, T* dw, Write write);

 private:
  // Rows of tiles that are worked on together: what they need stays in L2.
  struct Band {
    Index first;  // row of tiles
    Index rows;
  };
  template <typename Body>
  void ForBands(const Body& body) const;

  void TransformFilters(const T* w);                   // to points_
  void TransformInputs(const T* x, Band band);         // to inputs_
  void TransformErrors(const T* dy, Band band);        // to errors_
  void WriteOutputs(Band band, const T* bias, T* y);   // from products_
  void AddInputGradient(Band band, T* dx);             // from products_
  void AddPointGradient(Index tiles, bool first);      // to points_
  void WriteFilterGradient(T* dw, Write write) const;  // from points_
  void MultiplyForward(Index tiles);                   // inputs_ to products_
  void MultiplyBackward(Index tiles);                  // errors_ to products_

  const ImageSize in_;
  const ImageSize out_;
  const Index across_;  // tiles in a row
  const Index down_;
  const Index band_rows_;
  Vector<T> points_;  // filters at each point: [36][channels][filters]; or their gradient
  std::vector<Panels<T>> packed_;  // of each point: filters, or when going back their transpose
  std::vector<Panels<T>> packed_back_;
  Vector<T> inputs_;    // [36][tile][channels]
  Vector<T> errors_;    // [36][panel of filters][tile][kPanelWidth]
  Vector<T> products_;  // [36][tile][filters], going back [36][tile][channels]
};

}  // namespace leeway::networks

#endif  // LEEWAY_CLIENT_NETWORKS_WINOGRAD_H_
