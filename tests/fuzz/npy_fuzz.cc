#include "common/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<leeway::NpyArray> array = leeway::NpyArray::Parse(bytes, "fuzz");
  if (array.ok() && array->size() < 10'000) array->As<double>();
  return 0;
}
