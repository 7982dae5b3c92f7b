// What the tests of networks share: random vectors and finite differences.
#ifndef LEEWAY_TESTS_CLIENT_NETWORKS_CHECK_H_
#define LEEWAY_TESTS_CLIENT_NETWORKS_CHECK_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "common/rng.h"
#include "common/vectors.h"
#include "google/protobuf/text_format.h"
#include "proto/federation.pb.h"

namespace leeway::networks {

template <typename T>
Vector<T> Random(Eigen::Index size, uint64_t seed, double bound = 1) {
  Rng rng(seed, 0, 0, Purpose::kTest);
  Vector<T> values(size);
  for (T& value : values) value = static_cast<T>((2 * rng.Uniform() - 1) * bound);
  return values;
}

// Central differences of `loss` in every coordinate of `at`, against `gradient`:
// relative to the largest slope, 1e-6.
inline void ExpectSlopes(const std::function<double(const Vector<double>&)>& loss,
                         const Vector<double>& at, const Vector<double>& gradient) {
  const double step = 1e-5;
  Vector<double> slopes(at.size());
  for (Eigen::Index i = 0; i < at.size(); ++i) {
    Vector<double> moved = at;
    moved[i] += step;
    const double above = loss(moved);
    moved[i] -= 2 * step;
    slopes[i] = (above - loss(moved)) / (2 * step);
  }
  const double largest = slopes.cwiseAbs().maxCoeff();
  ASSERT_GT(largest, 0);
  Eigen::Index worst;
  const double error = (slopes - gradient).cwiseAbs().maxCoeff(&worst);
  EXPECT_LT(error / largest, 1e-6)
      << "coordinate " << worst << ": " << gradient[worst] << ", by differences " << slopes[worst];
}

inline v1::Model ModelOf(const std::string& text) {
  v1::Model model;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &model)) << text;
  return model;
}

inline v1::DataSchema SchemaOf(std::initializer_list<uint64_t> shape) {
  v1::DataSchema schema;
  for (uint64_t extent : shape) schema.add_feature_shape(extent);
  schema.set_labels(true);
  return schema;
}

}  // namespace leeway::networks

#endif  // LEEWAY_TESTS_CLIENT_NETWORKS_CHECK_H_
