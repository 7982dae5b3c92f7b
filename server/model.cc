#include "server/model.h"

#include <cstring>

#include "common/digest.h"
#include "common/model_file.h"
#include "common/status.h"

namespace leeway {
namespace {

// The data section is the flat vector, at the end of the file.
template <typename T>
Vector<double> Tail(const ModelLayout& layout, const std::string& file) {
  Vector<T> values(static_cast<Eigen::Index>(layout.size()));
  const size_t bytes = layout.size() * sizeof(T);
  std::memcpy(values.data(), file.data() + file.size() - bytes, bytes);
  return values.template cast<double>();
}

}  // namespace

ModelPtr MakeModel(const ModelLayout& layout, const Parameters& parameters) {
  auto model = std::make_shared<Model>();
  model->file = EncodeModel(layout.tensors, parameters);
  model->sha256 = Sha256Hex(model->file);
  return model;
}

ModelPtr MakeModel(const ModelLayout& layout, const Vector<double>& values) {
  if (layout.float64) return MakeModel(layout, Parameters(values));
  return MakeModel(layout, Parameters(Vector<float>(values.cast<float>())));
}

absl::StatusOr<ModelPtr> ParseModel(const ModelLayout& layout, std::string file) {
  LEEWAY_RETURN_IF_ERROR(DecodeModel(file, layout.tensors, "model").status());
  auto model = std::make_shared<Model>();
  model->file = std::move(file);
  model->sha256 = Sha256Hex(model->file);
  return model;
}

Vector<double> ValuesOf(const ModelLayout& layout, const Model& model) {
  return layout.float64 ? Tail<double>(layout, model.file) : Tail<float>(layout, model.file);
}

}  // namespace leeway
