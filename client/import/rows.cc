#include "client/import/rows.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace leeway {
namespace {

template <typename T>
std::vector<int64_t> Widen(absl::Span<const std::byte> bytes) {
  std::vector<int64_t> values(bytes.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<int64_t>(value);
  }
  return values;
}

}  // namespace

const char* PartName(Part part) { return part == Part::kTrain ? "train" : "test"; }

const char* NpyTypeName(NpyType type) {
  switch (type) {
    case NpyType::kFloat32:
      return "float32";
    case NpyType::kFloat64:
      return "float64";
    case NpyType::kUint8:
      return "uint8";
    case NpyType::kInt32:
      return "int32";
    case NpyType::kInt64:
      return "int64";
  }
  return "?";
}

uint64_t NpyTypeSize(NpyType type) {
  switch (type) {
    case NpyType::kUint8:
      return 1;
    case NpyType::kFloat32:
    case NpyType::kInt32:
      return 4;
    case NpyType::kFloat64:
    case NpyType::kInt64:
      return 8;
  }
  return 0;
}

uint64_t RowType::values() const {
  uint64_t product = 1;
  for (uint64_t dimension : shape) product *= dimension;
  return product;
}

uint64_t RowType::bytes() const { return values() * NpyTypeSize(type); }

std::string RowType::ToString() const {
  return absl::StrCat(NpyTypeName(type), " [", absl::StrJoin(shape, ","), "]");
}

RowType RowTypeOf(const NpyArray& array) {
  const std::vector<uint64_t>& shape = array.shape();
  RowType row{array.type(), {}};
  if (!shape.empty()) row.shape.assign(shape.begin() + 1, shape.end());
  return row;
}

std::vector<int64_t> IntegersOf(const Rows& rows) {
  switch (rows.type.type) {
    case NpyType::kUint8:
      return Widen<uint8_t>(rows.bytes);
    case NpyType::kInt32:
      return Widen<int32_t>(rows.bytes);
    case NpyType::kInt64:
      return Widen<int64_t>(rows.bytes);
    default:
      return {};
  }
}

}  // namespace leeway
