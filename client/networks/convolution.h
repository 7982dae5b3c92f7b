// Layers over images. An image is [height, width, channels], channels nearest in
// memory, so that the three horizontal neighbours of a filter lie in one run and
// a row of windows is a matrix whose rows overlap: no window is ever copied out.
#ifndef LEEWAY_CLIENT_NETWORKS_CONVOLUTION_H_
#define LEEWAY_CLIENT_NETWORKS_CONVOLUTION_H_

#include "client/networks/layer.h"

namespace leeway::networks {

struct ImageSize {
  Index height;
  Index width;
  Index channels;
  Index size() const { return height * width * channels; }
};

// Correlation with 3x3 filters, no padding: height and width shrink by 2.
// Parameters: filters [3, 3, channels, filters], then bias [filters] (as in
// Keras; PyTorch stores [filters, channels, 3, 3]).
template <typename T>
class Conv3x3 final : public Layer<T> {
 public:
  Conv3x3(ImageSize in, Index filters);
  ImageSize out() const { return out_; }
  Index inputs() const override { return in_.size(); }
  Index outputs() const override { return out_.size(); }
  Index parameters() const override { return (9 * in_.channels + 1) * out_.channels; }
  void Forward(const T* w, Extent extent, Rng* dropout, const T* x, T* y) override;
  void Backward(const T* w, Extent extent, const T* x, const T* y, const T* dy, T* dx, T* dw,
                Write write) override;

 private:
  void PackFlipped(const T* w);
  void InputGradient(const T* dy, T* dx);
  void FilterGradient(const T* x, const T* dy, T* dw, Write write);

  const ImageSize in_;
  const ImageSize out_;
  Panels<T> filters_;  // [3*3*channels, filters]
  Panels<T> flipped_;  // [3*3*filters, channels], both image axes reversed
  Vector<T> flat_;     // flipped_ before packing
  Vector<T> padded_;   // dy of one image between two zero columns on either side
  Vector<T> panel_;    // a few rows of dy, packed
};

// Largest of each 2x2 square; an odd last row or column is left out. The gradient
// goes to the first of equal values.
template <typename T>
class MaxPool2 final : public Layer<T> {
 public:
  explicit MaxPool2(ImageSize in) : in_(in), out_{in.height / 2, in.width / 2, in.channels} {}
  ImageSize out() const { return out_; }
  Index inputs() const override { return in_.size(); }
  Index outputs() const override { return out_.size(); }
  void Forward(const T* w, Extent extent, Rng* dropout, const T* x, T* y) override;
  void Backward(const T* w, Extent extent, const T* x, const T* y, const T* dy, T* dx, T* dw,
                Write write) override;

 private:
  const ImageSize in_;
  const ImageSize out_;
};

}  // namespace leeway::networks

#endif  // LEEWAY_CLIENT_NETWORKS_CONVOLUTION_H_
