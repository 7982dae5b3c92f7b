// A model as the server holds it: the bytes of its file, shared by everything
// that reads them (broadcast, store, script). Immutable.
#ifndef LEEWAY_COMMON_MODEL_H_
#define LEEWAY_COMMON_MODEL_H_

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/account.h"
#include "common/buffer.h"
#include "common/model_layout.h"
#include "common/vectors.h"
#include "common/workers.h"

namespace leeway {

// The models that this process holds: the open round's, the next, those that are not written
// yet or still on their way to somebody.
Account& ModelsHeld();

struct Model {
  std::string sha256;                   // of file
  Buffer file = Buffer(&ModelsHeld());  // safetensors
};
using ModelPtr = std::shared_ptr<const Model>;

ModelPtr MakeModel(const ModelLayout& layout, const Parameters& parameters);
// Rounds to the layout's precision.
ModelPtr MakeModel(const ModelLayout& layout, const Vector<double>& values);
// Checks the bytes against the layout.
absl::StatusOr<ModelPtr> ParseModel(const ModelLayout& layout, absl::string_view file);

// A model whose values are changed some at a time, so that no copy in float64 is
// made: `change` is given the first value's position and the values. The
// workers, if any, share them: `change` is called by several threads.
ModelPtr ChangeModel(const ModelLayout& layout, const Model& model, Workers* workers,
                     absl::FunctionRef<void(size_t begin, absl::Span<double> values)> change);
inline constexpr size_t kMostChanged = 4096;  // values at a time

// The model's values in float64.
Vector<double> ValuesOf(const ModelLayout& layout, const Model& model);

}  // namespace leeway

#endif  // LEEWAY_COMMON_MODEL_H_
