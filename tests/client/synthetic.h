// Small random data sets in memory, for tests of objectives and local updates.
#ifndef LEEWAY_TESTS_CLIENT_SYNTHETIC_H_
#define LEEWAY_TESTS_CLIENT_SYNTHETIC_H_

#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/dataset.h"
#include "client/objective.h"
#include "common/rng.h"
#include "common/vectors.h"

namespace leeway::testing_data {

// Through a file, as a client would have it: there is no other way in.
template <typename T>
NpyArray Array(const std::vector<uint64_t>& shape, const std::vector<T>& values) {
  const std::string path = absl::StrCat("/tmp/leeway_synthetic_", ::getpid(), ".npy");
  if (!WriteNpy<T>(path, shape, values).ok()) std::abort();
  absl::StatusOr<NpyArray> array = NpyArray::Map(path);
  ::unlink(path.c_str());
  if (!array.ok()) std::abort();
  return *std::move(array);
}

inline NpyArray Array(const Matrix<double>& m) {
  return Array<double>({static_cast<uint64_t>(m.rows()), static_cast<uint64_t>(m.cols())},
                       {m.data(), m.data() + m.size()});
}

inline NpyArray Array(const Vector<double>& v) {
  return Array<double>({static_cast<uint64_t>(v.size())}, {v.data(), v.data() + v.size()});
}

inline NpyArray Labels(const std::vector<int64_t>& labels) {
  return Array<int64_t>({labels.size()}, labels);
}

inline Matrix<double> RandomMatrix(Eigen::Index rows, Eigen::Index columns, uint64_t seed) {
  Rng rng(seed, 0, 0, Purpose::kTest);
  Matrix<double> m(rows, columns);
  for (double& x : m.reshaped()) x = rng.Normal();
  return m;
}

inline Vector<double> RandomVector(Eigen::Index size, uint64_t seed) {
  return RandomMatrix(size, 1, seed);
}

inline std::vector<int64_t> RandomLabels(size_t count, uint64_t classes, uint64_t seed) {
  Rng rng(seed, 1, 0, Purpose::kTest);
  std::vector<int64_t> labels(count);
  for (int64_t& label : labels) label = static_cast<int64_t>(rng.Below(classes));
  return labels;
}

inline Dataset Regression(const Matrix<double>& x, const Vector<double>& y) {
  Dataset data;
  data.id = "client-7";
  data.train = {Array(x), Array(y)};
  return data;
}

inline v1::Model LinearModel(double l2 = 0, bool intercept = false) {
  v1::Model model;
  model.mutable_linear_regression()->set_intercept(intercept);
  model.mutable_linear_regression()->set_l2(l2);
  return model;
}

inline v1::Model SoftmaxModel(uint32_t classes, double l2 = 0) {
  v1::Model model;
  model.mutable_softmax_regression()->set_classes(classes);
  model.mutable_softmax_regression()->set_l2(l2);
  return model;
}

inline std::unique_ptr<Objective<double>> Make(const v1::Model& model, const Dataset& data) {
  absl::StatusOr<AnyObjective> any = MakeObjective(model, data);
  if (!any.ok()) {
    std::cerr << any.status() << "\n";
    std::abort();
  }
  return std::get<std::unique_ptr<Objective<double>>>(*std::move(any));
}

}  // namespace leeway::testing_data

#endif  // LEEWAY_TESTS_CLIENT_SYNTHETIC_H_
