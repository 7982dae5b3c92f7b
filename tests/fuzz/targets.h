// What the fuzz targets decode against; the seeds are made for the same.
#ifndef LEEWAY_TESTS_FUZZ_TARGETS_H_
#define LEEWAY_TESTS_FUZZ_TARGETS_H_

#include "common/model_layout.h"
#include "common/tally.h"
#include "proto/federation.pb.h"

namespace leeway {

constexpr uint64_t kFuzzClients = 2;
constexpr uint64_t kFuzzWeight = 2;  // of all clients of a report together

inline TallyShape FuzzShape() {
  TallyShape shape;
  shape.dimension = 3;
  shape.vectors = 1;
  shape.scalars = 2;
  shape.groups = 2;
  shape.fraction_bits = 40;
  return shape;
}

// One client alone is in the first group, two are in one each.
inline std::vector<GroupShare> FuzzShares(int clients) {
  if (clients == 1) return {{.clients = 1, .weight = kFuzzWeight}, {}};
  return {{.clients = 1, .weight = 1}, {.clients = 1, .weight = 1}};
}

inline ModelLayout FuzzLayout() {
  v1::Model model;
  model.mutable_softmax_regression()->set_classes(2);
  v1::DataSchema schema;
  schema.add_feature_shape(3);
  schema.set_labels(true);
  return *LayoutOf(model, schema);
}

}  // namespace leeway

#endif  // LEEWAY_TESTS_FUZZ_TARGETS_H_
