// NumPy .npy files (format 1.0 to 3.0, C order, little-endian).
#ifndef LEEWAY_COMMON_NPY_H_
#define LEEWAY_COMMON_NPY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace leeway {

enum class NpyType { kFloat32, kFloat64, kUint8, kInt32, kInt64 };

// A read-only array mapped from a file: pages are read when touched and shared
// between processes. Immutable; keep it alive while using data().
class NpyArray {
 public:
  // Checks magic, header, type, order and that the file is exactly as long as
  // its header says. Errors name the file and what was found instead.
  static absl::StatusOr<NpyArray> Map(const std::string& path);
  // The same over bytes in memory (tests, fuzzing); `bytes` is copied.
  static absl::StatusOr<NpyArray> Parse(absl::string_view bytes, absl::string_view name);
  // Values that come from no file, copied to where a file's would lie as to alignment.
  static NpyArray Of(absl::Span<const double> values, std::vector<uint64_t> shape);

  NpyType type() const { return type_; }
  const std::vector<uint64_t>& shape() const { return shape_; }
  // Number of elements.
  size_t size() const;
  const std::byte* data() const { return data_; }
  // Copies (converting from any numeric type) into T = float, double, int64_t.
  template <typename T>
  std::vector<T> As() const;

 private:
  std::shared_ptr<const void> owner_;  // the mapping or the copied bytes
  const std::byte* data_ = nullptr;
  NpyType type_ = NpyType::kFloat64;
  std::vector<uint64_t> shape_;
};

// Writes an array (format 1.0). T is float, double, uint8_t, int32_t or int64_t.
template <typename T>
absl::Status WriteNpy(const std::string& path, absl::Span<const uint64_t> shape,
                      absl::Span<const T> values);

}  // namespace leeway

#endif  // LEEWAY_COMMON_NPY_H_
