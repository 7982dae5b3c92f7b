// The tensors of each kind of model, shared by the server (which makes the
// initial model) and the client (which computes with it).
#ifndef LEEWAY_COMMON_MODEL_LAYOUT_H_
#define LEEWAY_COMMON_MODEL_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model_file.h"
#include "common/vectors.h"
#include "proto/federation.pb.h"

namespace leeway {

struct ModelLayout {
  std::vector<TensorSpec> tensors;
  bool float64 = true;
  uint64_t size() const {
    uint64_t n = 0;
    for (const TensorSpec& t : tensors) n += t.size();
    return n;
  }
};

// Whether the model has an intercept: unless it says that it has none.
bool HasIntercept(const v1::LinearRegression& model);

// Errors name the model's field or the schema's property that does not fit.
absl::StatusOr<ModelLayout> LayoutOf(const v1::Model& model, const v1::DataSchema& schema);

// The initial model: drawn from (seed, Purpose::kInitialModel), tensor by tensor.
Parameters InitialModel(const ModelLayout& layout, uint64_t seed);

}  // namespace leeway

#endif  // LEEWAY_COMMON_MODEL_LAYOUT_H_
