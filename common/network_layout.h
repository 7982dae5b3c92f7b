// The tensors of the networks: what LayoutOf answers for Mlp, Cnn and Lstm.
// All are float32. Weights have the shapes of Keras: dense [inputs, outputs],
// filters [3, 3, channels, filters], LSTM [inputs, 4 hidden] and
// [hidden, 4 hidden] with the gates in the order input, forget, cell, output.
#ifndef LEEWAY_COMMON_NETWORK_LAYOUT_H_
#define LEEWAY_COMMON_NETWORK_LAYOUT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/model_layout.h"
#include "proto/federation.pb.h"

namespace leeway {

// The token that fills up short sequences; as a target it does not count.
constexpr int32_t kPadToken = 0;

// A Cnn's sizes, with defaults filled in and the image's shape resolved.
struct CnnSizes {
  uint64_t height, width, channels;
  uint64_t filters1, filters2, hidden;
  // Inputs of the first dense layer.
  uint64_t pooled() const { return ((height - 4) / 2) * ((width - 4) / 2) * filters2; }
};
absl::StatusOr<CnnSizes> CnnSizesOf(const v1::Cnn& model, const v1::DataSchema& schema);

absl::StatusOr<ModelLayout> MlpLayout(const v1::Mlp& model, const v1::DataSchema& schema);
absl::StatusOr<ModelLayout> CnnLayout(const v1::Cnn& model, const v1::DataSchema& schema);
absl::StatusOr<ModelLayout> LstmLayout(const v1::Lstm& model, const v1::DataSchema& schema);

}  // namespace leeway

#endif  // LEEWAY_COMMON_NETWORK_LAYOUT_H_
