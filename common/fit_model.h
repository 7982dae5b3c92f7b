// A model's parameters from a file that somebody else may have written.
#ifndef LEEWAY_COMMON_FIT_MODEL_H_
#define LEEWAY_COMMON_FIT_MODEL_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model_file.h"
#include "common/vectors.h"

namespace leeway {

// The parameters of a model with these tensors, from any safetensors file that holds exactly
// them, in whatever order. Errors name the tensor and both shapes or types.
absl::StatusOr<Parameters> FitModel(absl::string_view bytes, const std::vector<TensorSpec>& tensors,
                                    bool float64, absl::string_view name);

}  // namespace leeway

#endif  // LEEWAY_COMMON_FIT_MODEL_H_
