// Makes another federation out of the samples of one: the training parts of all
// clients are pooled and dealt anew, the test parts likewise. Seeded; the choice
// is recorded in federation.json.
#ifndef LEEWAY_CLIENT_IMPORT_PARTITION_H_
#define LEEWAY_CLIENT_IMPORT_PARTITION_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "client/import/federation.h"
#include "client/import/federation_writer.h"

namespace leeway {

struct PartitionOptions {
  WriterOptions writer;
  std::string source;
  // iid: equal sizes, at random. dirichlet, shards: by label (assignment.h).
  // size: at random, log-normal sizes. shuffle: at random, every client keeps its
  // name and sizes. natural: clients stay whole; with `clients`, several become one.
  std::string by = "iid";
  uint64_t clients = 0;
  double alpha = 0.5;              // dirichlet
  uint64_t shards_per_client = 2;  // shards
  double sigma = 1.0;              // size
  uint64_t seed = 1;
  bool central_test = false;  // all test samples go to the evaluator, none to clients
};
absl::StatusOr<Json> PartitionFederation(const PartitionOptions& options);

}  // namespace leeway

#endif  // LEEWAY_CLIENT_IMPORT_PARTITION_H_
