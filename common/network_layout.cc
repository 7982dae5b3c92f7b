#include "common/network_layout.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"

namespace leeway {
namespace {

// Sizes come from a config and from the network: these limits keep products of
// any four of them within 64 bits and a model within memory.
constexpr uint64_t kMaxSize = 1 << 15;
constexpr uint64_t kMaxVocabulary = 1 << 24;
constexpr uint64_t kMaxParameters = uint64_t{1} << 30;

absl::Status CheckRange(absl::string_view field, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ": give a number from ", least, " to ", most));
}

absl::Status CheckDropout(absl::string_view field, double rate) {
  if (rate >= 0 && rate < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", rate, ": give a share from 0 (off) to below 1"));
}

absl::Status CheckLabels(const v1::DataSchema& schema) {
  if (schema.labels()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the data's targets (train_y.npy) are not integers: a network needs class labels or tokens; "
      "save them as int32");
}

std::string ShapeText(const v1::DataSchema& schema) {
  return absl::StrCat("{", absl::StrJoin(schema.feature_shape(), ", "), "}");
}

absl::Status ShapeError(const v1::DataSchema& schema, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("the data's examples (train_x.npy) have shape ",
                                                 ShapeText(schema), ": expected ", expected));
}

// Glorot and Bengio's uniform initialisation.
double Glorot(uint64_t fan_in, uint64_t fan_out) {
  return std::sqrt(6.0 / static_cast<double>(fan_in + fan_out));
}

void AddDense(const std::string& name, uint64_t inputs, uint64_t outputs, ModelLayout& layout) {
  layout.tensors.push_back({name + ".weight", {inputs, outputs}, Glorot(inputs, outputs)});
  layout.tensors.push_back({name + ".bias", {outputs}});
}

void AddConv(const std::string& name, uint64_t channels, uint64_t filters, ModelLayout& layout) {
  layout.tensors.push_back(
      {name + ".weight", {3, 3, channels, filters}, Glorot(9 * channels, 9 * filters)});
  layout.tensors.push_back({name + ".bias", {filters}});
}

void AddLstm(const std::string& name, uint64_t inputs, uint64_t hidden, ModelLayout& layout) {
  layout.tensors.push_back(
      {name + ".input_weight", {inputs, 4 * hidden}, Glorot(inputs, 4 * hidden)});
  layout.tensors.push_back({name + ".recurrent_weight",
                            {hidden, 4 * hidden},
                            1 / std::sqrt(static_cast<double>(hidden))});
  // The forget gate starts open, as in Keras: else early gradients fade in a few steps.
  layout.tensors.push_back({name + ".bias", {4 * hidden}, 0, hidden, 2 * hidden});
}

absl::StatusOr<ModelLayout> Checked(ModelLayout layout, absl::string_view model) {
  layout.float64 = false;
  if (layout.size() <= kMaxParameters) return layout;
  return absl::InvalidArgumentError(absl::StrCat(model, " has ", layout.size(),
                                                 " parameters: at most ", kMaxParameters,
                                                 " are possible; choose smaller layers"));
}

}  // namespace

absl::StatusOr<ModelLayout> MlpLayout(const v1::Mlp& model, const v1::DataSchema& schema) {
  LEEWAY_RETURN_IF_ERROR(CheckLabels(schema));
  LEEWAY_RETURN_IF_ERROR(CheckRange("model.mlp.classes", model.classes(), 2, kMaxSize));
  if (!(std::isfinite(model.l2()) && model.l2() >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat("model.mlp.l2 is ", model.l2(),
                                                   ": give a finite number that is not negative"));
  }
  uint64_t size = 1;
  for (uint64_t extent : schema.feature_shape()) {
    if (extent == 0 || extent > kMaxVocabulary / size) {
      return ShapeError(schema, absl::StrCat("1 to ", kMaxVocabulary, " features in all"));
    }
    size *= extent;
  }
  ModelLayout layout;
  int number = 0;
  for (uint64_t hidden : model.hidden()) {
    LEEWAY_RETURN_IF_ERROR(CheckRange("model.mlp.hidden", hidden, 1, kMaxSize));
    AddDense(absl::StrCat("dense", ++number), size, hidden, layout);
    size = hidden;
  }
  AddDense(absl::StrCat("dense", ++number), size, model.classes(), layout);
  return Checked(std::move(layout), "model.mlp");
}

absl::StatusOr<CnnSizes> CnnSizesOf(const v1::Cnn& model, const v1::DataSchema& schema) {
  if (model.filters_size() != 0 && model.filters_size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.cnn.filters has ", model.filters_size(),
                     " values: give two, one for each convolution, or none for 32 and 64"));
  }
  CnnSizes sizes{};
  sizes.filters1 = model.filters_size() ? model.filters(0) : 32;
  sizes.filters2 = model.filters_size() ? model.filters(1) : 64;
  sizes.hidden = model.hidden() ? model.hidden() : 128;
  for (uint64_t n : {sizes.filters1, sizes.filters2}) {
    LEEWAY_RETURN_IF_ERROR(CheckRange("model.cnn.filters", n, 1, kMaxSize));
  }
  LEEWAY_RETURN_IF_ERROR(CheckRange("model.cnn.hidden", sizes.hidden, 1, kMaxSize));

  const auto& shape = schema.feature_shape();
  sizes.channels = shape.size() == 3 ? shape[2] : 1;
  if (shape.size() == 2 || shape.size() == 3) {
    sizes.height = shape[0];
    sizes.width = shape[1];
  } else if (shape.size() == 1 && shape[0] <= kMaxSize * kMaxSize) {
    const auto side = static_cast<uint64_t>(std::lround(std::sqrt(static_cast<double>(shape[0]))));
    if (side * side == shape[0]) sizes.height = sizes.width = side;
  }
  if (sizes.height < 6 || sizes.width < 6 || sizes.height > kMaxSize || sizes.width > kMaxSize ||
      sizes.channels < 1 || sizes.channels > kMaxSize) {
    return ShapeError(schema,
                      "an image of at least 6 by 6: {height, width}, {height, width, channels}, "
                      "or {n} with n a square number");
  }
  return sizes;
}

absl::StatusOr<ModelLayout> CnnLayout(const v1::Cnn& model, const v1::DataSchema& schema) {
  LEEWAY_RETURN_IF_ERROR(CheckLabels(schema));
  LEEWAY_RETURN_IF_ERROR(CheckRange("model.cnn.classes", model.classes(), 2, kMaxSize));
  LEEWAY_RETURN_IF_ERROR(
      CheckDropout("model.cnn.dropout_after_pooling", model.dropout_after_pooling()));
  LEEWAY_RETURN_IF_ERROR(
      CheckDropout("model.cnn.dropout_after_dense", model.dropout_after_dense()));
  LEEWAY_ASSIGN_OR_RETURN(const CnnSizes sizes, CnnSizesOf(model, schema));
  ModelLayout layout;
  AddConv("conv1", sizes.channels, sizes.filters1, layout);
  AddConv("conv2", sizes.filters1, sizes.filters2, layout);
  AddDense("dense1", sizes.pooled(), sizes.hidden, layout);
  AddDense("dense2", sizes.hidden, model.classes(), layout);
  return Checked(std::move(layout), "model.cnn");
}

absl::StatusOr<ModelLayout> LstmLayout(const v1::Lstm& model, const v1::DataSchema& schema) {
  LEEWAY_RETURN_IF_ERROR(CheckLabels(schema));
  LEEWAY_RETURN_IF_ERROR(
      CheckRange("model.lstm.vocabulary", model.vocabulary(), 2, kMaxVocabulary));
  LEEWAY_RETURN_IF_ERROR(CheckRange("model.lstm.embedding", model.embedding(), 1, kMaxSize));
  LEEWAY_RETURN_IF_ERROR(CheckRange("model.lstm.projection", model.projection(), 0, kMaxSize));
  if (model.hidden_size() == 0) {
    return absl::InvalidArgumentError(
        "model.lstm.hidden is empty: give the size of at least one LSTM layer");
  }
  if (schema.feature_shape_size() != 1 || schema.feature_shape(0) < 1 ||
      schema.feature_shape(0) > kMaxSize) {
    return ShapeError(schema, absl::StrCat("{steps}, a sequence of 1 to ", kMaxSize, " tokens"));
  }
  ModelLayout layout;
  uint64_t size = model.embedding();
  // Keras's default: small enough that the first layer starts out linear.
  layout.tensors.push_back({"embedding.weight", {model.vocabulary(), size}, 0.05});
  int number = 0;
  for (uint64_t hidden : model.hidden()) {
    LEEWAY_RETURN_IF_ERROR(CheckRange("model.lstm.hidden", hidden, 1, kMaxSize));
    AddLstm(absl::StrCat("lstm", ++number), size, hidden, layout);
    size = hidden;
  }
  if (model.projection() > 0) {
    AddDense("projection", size, model.projection(), layout);
    size = model.projection();
  }
  AddDense("output", size, model.vocabulary(), layout);
  return Checked(std::move(layout), "model.lstm");
}

}  // namespace leeway
