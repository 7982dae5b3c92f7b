// The vector types that both sides share. Convex models compute in float64,
// networks in float32.
#ifndef LEEWAY_COMMON_VECTORS_H_
#define LEEWAY_COMMON_VECTORS_H_

#include <Eigen/Core>
#include <variant>

namespace leeway {

template <typename T>
using Vector = Eigen::Matrix<T, Eigen::Dynamic, 1>;
template <typename T>
using ConstVectorRef = Eigen::Ref<const Vector<T>>;
template <typename T>
using VectorRef = Eigen::Ref<Vector<T>>;
// Row-major, one example per row, as .npy files store them.
template <typename T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// All parameters of a model, flattened, in the model's own precision.
using Parameters = std::variant<Vector<float>, Vector<double>>;

inline Eigen::Index SizeOf(const Parameters& parameters) {
  return std::visit([](const auto& v) { return v.size(); }, parameters);
}

}  // namespace leeway

#endif  // LEEWAY_COMMON_VECTORS_H_
