// Rows of samples on their way to a .npy file: a type, the shape of one row and
// the bytes of all rows. A view: the bytes belong to the caller.
#ifndef LEEWAY_CLIENT_IMPORT_ROWS_H_
#define LEEWAY_CLIENT_IMPORT_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/npy.h"

namespace leeway {

enum class Part { kTrain, kTest };

// "train" or "test": the prefix of the part's files.
const char* PartName(Part part);

struct RowType {
  NpyType type = NpyType::kFloat32;
  std::vector<uint64_t> shape;  // of one row; empty for one value

  uint64_t values() const;
  uint64_t bytes() const;
  bool integer() const { return type != NpyType::kFloat32 && type != NpyType::kFloat64; }
  // As in "float32 [28,28]".
  std::string ToString() const;

  bool operator==(const RowType&) const = default;
};

struct Rows {
  RowType type;
  uint64_t count = 0;
  absl::Span<const std::byte> bytes;
};

const char* NpyTypeName(NpyType type);
uint64_t NpyTypeSize(NpyType type);
// The row type of a mapped array (its shape without the first dimension).
RowType RowTypeOf(const NpyArray& array);
// All values of integer rows (a copy).
std::vector<int64_t> IntegersOf(const Rows& rows);

template <typename T>
constexpr NpyType NpyTypeOf();
template <>
constexpr NpyType NpyTypeOf<float>() {
  return NpyType::kFloat32;
}
template <>
constexpr NpyType NpyTypeOf<int32_t>() {
  return NpyType::kInt32;
}
template <>
constexpr NpyType NpyTypeOf<int64_t>() {
  return NpyType::kInt64;
}

// `count` rows of the given shape over `values`, which must be count rows long.
template <typename T>
Rows RowsOf(const std::vector<T>& values, uint64_t count, std::vector<uint64_t> row_shape) {
  return {{NpyTypeOf<T>(), std::move(row_shape)},
          count,
          absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                              values.size() * sizeof(T))};
}

}  // namespace leeway

#endif  // LEEWAY_CLIENT_IMPORT_ROWS_H_
