// Values of mapped .npy files as models take them in: converted, and bytes scaled to
// 0 .. 1. Free functions over immutable arrays.
#ifndef LEEWAY_CLIENT_NPY_VALUES_H_
#define LEEWAY_CLIENT_NPY_VALUES_H_

#include <Eigen/Core>
#include <cstring>
#include <type_traits>

#include "common/npy.h"

namespace leeway {

// Calls visit(pointer to the array's first value, with its type).
template <typename Visit>
auto Typed(const NpyArray& array, Visit visit) {
  const std::byte* data = array.data();
  switch (array.type()) {
    case NpyType::kFloat32:
      return visit(reinterpret_cast<const float*>(data));
    case NpyType::kFloat64:
      return visit(reinterpret_cast<const double*>(data));
    case NpyType::kUint8:
      return visit(reinterpret_cast<const uint8_t*>(data));
    case NpyType::kInt32:
      return visit(reinterpret_cast<const int32_t*>(data));
    case NpyType::kInt64:
      break;
  }
  return visit(reinterpret_cast<const int64_t*>(data));
}

// Values from .npy files need not be aligned, hence memcpy.
template <typename From>
From Read(const From* from) {
  From value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// Copies `count` values from `first` on, converted, to every `stride`-th place of
// `to`. Bytes are scaled from 0 .. 255 to 0 .. 1 if To is a floating-point type.
template <typename To>
void CopyValues(const NpyArray& array, Eigen::Index first, Eigen::Index count, To* to,
                Eigen::Index stride = 1) {
  Typed(array, [&]<typename From>(const From* from) {
    constexpr bool kScaled = std::is_floating_point_v<To> && std::is_same_v<From, uint8_t>;
    for (Eigen::Index i = 0; i < count; ++i) {
      const auto value = static_cast<To>(Read(from + first + i));
      to[i * stride] = kScaled ? value / To(255) : value;
    }
  });
}

}  // namespace leeway

#endif  // LEEWAY_CLIENT_NPY_VALUES_H_
