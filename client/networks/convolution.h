// Layers over images. An image is [height, width, channels], channels nearest in
// memory, so that the three horizontal neighbours of a filter lie in one run and
// a row of windows is a matrix whose rows overlap: no window is ever copied out.
#ifndef LEEWAY_CLIENT_NETWORKS_CONVOLUTION_H_
#define LEEWAY_CLIENT_NETWORKS_CONVOLUTION_H_

#include <optional>

#include "client/networks/image_size.h"
#include "client/networks/layer.h"
#include "client/networks/winograd.h"

namespace leeway::networks {

// Correlation with 3x3 filters, no padding: height and width shrink by 2.
// Parameters: filters [3, 3, channels, filters], then bias [filters] (as in
// Keras; PyTorch stores [filters, channels, 3, 3]). With many channels and filters by
// Winograd's algorithm, else window by window.
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
  struct Windows {      // scratch for what goes window by window
    Panels<T> filters;  // [3*3*channels, filters]
    Panels<T> flipped;  // [3*3*filters, channels], both image axes reversed
    Vector<T> flat;     // flipped before packing
    Vector<T> padded;   // dy of one image between two zero columns on either side
    Vector<T> panel;    // a few rows of dy, packed
  };

  void PackFlipped(const T* w);
  void InputGradient(const T* dy, T* dx);
  void FilterGradient(const T* x, const T* dy, T* dw, Write write);

  const ImageSize in_;
  const ImageSize out_;
  std::optional<Winograd3x3<T>> winograd_;  // where it suits
  Windows windows_;                         // elsewhere
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
