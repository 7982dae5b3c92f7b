#include "common/model_layout.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/network_layout.h"
#include "common/rng.h"
#include "common/status.h"

namespace leeway {
namespace {

// A schema comes from the network: without a limit, one that asks for 2^60
// features would make the server allocate them.
constexpr uint64_t kMaxParameters = uint64_t{1} << 30;

// Number of inputs of one example, flattened.
absl::StatusOr<uint64_t> Features(const v1::DataSchema& schema) {
  uint64_t features = 1;
  for (uint64_t extent : schema.feature_shape()) {
    if (extent == 0 || extent > kMaxParameters / features) {
      return absl::InvalidArgumentError(
          absl::StrCat("schema.feature_shape is {", absl::StrJoin(schema.feature_shape(), ", "),
                       "}: expected 1 to ", kMaxParameters, " features in all"));
    }
    features *= extent;
  }
  return features;
}

absl::Status CheckL2(double l2, absl::string_view field) {
  if (std::isfinite(l2) && l2 >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", l2, ": give a finite number that is not negative"));
}

absl::StatusOr<ModelLayout> LinearLayout(const v1::LinearRegression& model,
                                         const v1::DataSchema& schema) {
  LEEWAY_RETURN_IF_ERROR(CheckL2(model.l2(), "model.linear_regression.l2"));
  LEEWAY_ASSIGN_OR_RETURN(const uint64_t features, Features(schema));
  ModelLayout layout;
  layout.tensors = {{"weight", {features}}};
  if (HasIntercept(model)) layout.tensors = {{"weight", {1, features}}, {"bias", {1}}};
  return layout;
}

absl::StatusOr<ModelLayout> SoftmaxLayout(const v1::SoftmaxRegression& model,
                                          const v1::DataSchema& schema) {
  LEEWAY_RETURN_IF_ERROR(CheckL2(model.l2(), "model.softmax_regression.l2"));
  const uint64_t classes = model.classes();
  if (classes < 2) {
    return absl::InvalidArgumentError(absl::StrCat("model.softmax_regression.classes is ", classes,
                                                   ": give the number of classes, at least 2"));
  }
  LEEWAY_ASSIGN_OR_RETURN(const uint64_t features, Features(schema));
  if (features + 1 > kMaxParameters / classes) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.softmax_regression has ", classes, " classes of ", features,
                     " features: more than ", kMaxParameters, " parameters"));
  }
  ModelLayout layout;
  layout.tensors = {{"weight", {classes, features}}, {"bias", {classes}}};
  return layout;
}

// The welcome of a server brings the contents: they come from the network.
absl::StatusOr<ModelLayout> FileLayout(const v1::Model& model) {
  ModelLayout layout;
  layout.float64 = model.contents().float64();
  uint64_t parameters = 0;
  for (const v1::ModelTensor& tensor : model.contents().tensors()) {
    uint64_t size = 1;
    for (const uint64_t side : tensor.shape()) {
      if (side == 0 || side > kMaxParameters / size) size = kMaxParameters + 1;
      if (size > kMaxParameters) break;
      size *= side;
    }
    parameters += size;
    if (parameters > kMaxParameters) {
      return absl::InvalidArgumentError(absl::StrCat("model.file: with tensor '", tensor.name(),
                                                     "' it has more than ", kMaxParameters,
                                                     " parameters"));
    }
    layout.tensors.push_back({tensor.name(), {tensor.shape().begin(), tensor.shape().end()}});
  }
  if (parameters == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.file is ", model.file(), ", whose tensors are not known"));
  }
  return layout;
}

template <typename T>
Vector<T> Draw(const ModelLayout& layout, Rng rng) {
  Vector<T> parameters = Vector<T>::Zero(static_cast<Eigen::Index>(layout.size()));
  Eigen::Index next = 0;
  for (const TensorSpec& tensor : layout.tensors) {
    const Eigen::Index end = next + static_cast<Eigen::Index>(tensor.size());
    const Eigen::Index begin = next;
    if (tensor.init_bound == 0) next = end;
    for (; next < end; ++next) {
      parameters[next] = static_cast<T>((2 * rng.Uniform() - 1) * tensor.init_bound);
    }
    parameters
        .segment(begin + static_cast<Eigen::Index>(tensor.ones_begin),
                 static_cast<Eigen::Index>(tensor.ones_end - tensor.ones_begin))
        .setOnes();
  }
  return parameters;
}

}  // namespace

bool HasIntercept(const v1::LinearRegression& model) {
  return !model.has_intercept() || model.intercept();
}

absl::StatusOr<ModelLayout> LayoutOf(const v1::Model& model, const v1::DataSchema& schema) {
  switch (model.kind_case()) {
    case v1::Model::kLinearRegression:
      return LinearLayout(model.linear_regression(), schema);
    case v1::Model::kSoftmaxRegression:
      return SoftmaxLayout(model.softmax_regression(), schema);
    case v1::Model::kMlp:
      return MlpLayout(model.mlp(), schema);
    case v1::Model::kCnn:
      return CnnLayout(model.cnn(), schema);
    case v1::Model::kLstm:
      return LstmLayout(model.lstm(), schema);
    case v1::Model::kFile:
      return FileLayout(model);
    case v1::Model::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "model.kind is not set: name one, for example model { linear_regression {} }");
}

Parameters InitialModel(const ModelLayout& layout, uint64_t seed) {
  const Rng rng(seed, 0, 0, Purpose::kInitialModel);
  if (layout.float64) return Draw<double>(layout, rng);
  return Draw<float>(layout, rng);
}

}  // namespace leeway
