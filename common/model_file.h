// A model as a file: safetensors, with the tensors of the model's layout laid
// out one after the other in the order of the flat parameter vector, so that the
// data section of the file *is* the flat vector. The same parameters always give
// the same bytes; their sha256 is the model's name.
#ifndef LEEWAY_COMMON_MODEL_FILE_H_
#define LEEWAY_COMMON_MODEL_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/vectors.h"

namespace leeway {

struct TensorSpec {
  std::string name;
  std::vector<uint64_t> shape;
  // Initial values are uniform in [-init_bound, init_bound]; 0 means zeros.
  double init_bound = 0;
  // Values from ones_begin up to ones_end start at 1 instead.
  uint64_t ones_begin = 0;
  uint64_t ones_end = 0;
  uint64_t size() const {
    uint64_t n = 1;
    for (uint64_t s : shape) n *= s;
    return n;
  }
};

// Bytes of the file. The header is padded with spaces to a multiple of 8.
std::string EncodeModel(const std::vector<TensorSpec>& tensors, const Parameters& parameters);

// The part of that file before the values.
std::string EncodeModelHeader(const std::vector<TensorSpec>& tensors, bool float64);

// The tensors that a model file holds, in the order of their values.
struct ModelFileContents {
  std::vector<TensorSpec> tensors;
  bool float64 = true;
};
// Reads the header of any safetensors file whose tensors are all F32 or all F64 and whose
// values lie one after the other. Errors name `name` and the tensor.
absl::StatusOr<ModelFileContents> ListTensors(absl::string_view bytes, absl::string_view name);

// The parameters in a model file that must have exactly these tensors, in any
// order of keys but at the offsets EncodeModel gives them, all F32 or all F64.
// Refuses (InvalidArgument, naming `name` and the tensor) anything else:
// truncation, trailing bytes, header too long, other dtypes, overlaps.
absl::StatusOr<Parameters> DecodeModel(absl::string_view bytes,
                                       const std::vector<TensorSpec>& tensors,
                                       absl::string_view name);
// Checks only what stands before the values, all F64 or all F32.
absl::Status CheckModelHeader(absl::string_view bytes, const std::vector<TensorSpec>& tensors,
                              bool float64, absl::string_view name);

}  // namespace leeway

#endif  // LEEWAY_COMMON_MODEL_FILE_H_
