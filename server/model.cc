#include "server/model.h"

#include <algorithm>
#include <cstring>

#include "common/digest.h"
#include "common/huge_pages.h"
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

// The values from `begin` up to `end`.
template <typename T>
void Change(absl::FunctionRef<void(size_t, absl::Span<double>)> change, size_t begin, size_t end,
            char* values) {
  T narrow[kMostChanged];
  double wide[kMostChanged];
  for (; begin < end; begin += kMostChanged) {
    const size_t n = std::min(kMostChanged, end - begin);
    std::memcpy(narrow, values + begin * sizeof(T), n * sizeof(T));
    std::copy(narrow, narrow + n, wide);
    change(begin, absl::MakeSpan(wide, n));
    std::transform(wide, wide + n, narrow, [](double x) { return static_cast<T>(x); });
    std::memcpy(values + begin * sizeof(T), narrow, n * sizeof(T));
  }
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

ModelPtr ChangeModel(const ModelLayout& layout, const Model& model, Workers* workers,
                     absl::FunctionRef<void(size_t begin, absl::Span<double> values)> change) {
  auto changed = std::make_shared<Model>();
  changed->file.reserve(model.file.size());
  PreferHugePages(changed->file.data(), changed->file.capacity());
  changed->file.assign(model.file);
  const size_t bytes = layout.size() * (layout.float64 ? sizeof(double) : sizeof(float));
  char* values = changed->file.data() + changed->file.size() - bytes;
  ForBlocks(layout.size(), workers, [&](size_t begin, size_t n) {
    layout.float64 ? Change<double>(change, begin, begin + n, values)
                   : Change<float>(change, begin, begin + n, values);
  });
  changed->sha256 = Sha256Hex(changed->file);
  return changed;
}

Vector<double> ValuesOf(const ModelLayout& layout, const Model& model) {
  return layout.float64 ? Tail<double>(layout, model.file) : Tail<float>(layout, model.file);
}

}  // namespace leeway
