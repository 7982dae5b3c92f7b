// What the fuzz targets decode against; the seeds are made for the same.
#ifndef LEEWAY_TESTS_FUZZ_TARGETS_H_
#define LEEWAY_TESTS_FUZZ_TARGETS_H_

#include <vector>

#include "common/model_layout.h"
#include "common/sums.h"
#include "common/tally.h"
#include "proto/federation.pb.h"

namespace leeway {

constexpr size_t kFuzzDimension = 3;
constexpr uint64_t kFuzzClients = 2;
constexpr uint64_t kFuzzWeight = 2;  // of all clients of a report together

// A vector, a number that is sent, one that follows from it, and a count.
inline v1::Task FuzzTask(v1::WireEncoding encoding = v1::EXACT) {
  v1::Task task;
  task.set_groups(2);
  task.set_encoding(encoding);
  Ask(kDisplacement, task).set_largest(256);
  Ask(kLoss, task);
  Ask(kLossSquared, task);
  Ask(kDisplacementSquared, task);
  AskAbove(kSmoothnessAbove, 0.5, task);
  SetUnits(kFuzzWeight, task);
  return task;
}

inline TaskSums FuzzSums(v1::WireEncoding encoding = v1::EXACT) {
  return TaskSums(FuzzTask(encoding), kFuzzDimension);
}

// The task whose reports have this encoding.
inline v1::WireEncoding FuzzWire(v1::Encoding encoding) {
  if (encoding == v1::BFLOAT16) return v1::BFLOAT16_WIRE;
  return encoding == v1::INT8 ? v1::INT8_WIRE : v1::EXACT;
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
