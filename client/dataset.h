// One client's private data, from a directory with train_x.npy, train_y.npy and
// optionally test_x.npy, test_y.npy. Immutable after loading; thread-safe.
#ifndef LEEWAY_CLIENT_DATASET_H_
#define LEEWAY_CLIENT_DATASET_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/npy.h"
#include "common/synthetic.h"
#include "proto/federation.pb.h"

namespace leeway {

// Examples of one part (train or test): x has one row per example, y one value.
struct DataPart {
  NpyArray x;
  NpyArray y;
  uint64_t examples() const { return x.shape()[0]; }
};

struct Dataset {
  std::string id;  // the directory's name: the client's name
  DataPart train;
  std::optional<DataPart> test;
  bool evaluator = false;  // a central test set; train is then the test part again
  // Makes the training part once more, where it comes from no file: whoever can do without it for
  // some time need not hold it.
  std::function<DataPart()> make_again = nullptr;

  // Checks shapes, equal numbers of rows, at least one training example, and
  // that all values are finite. Errors name the file and the remedy.
  static absl::StatusOr<Dataset> Load(const std::string& directory);
  // A central test set: test_x.npy and test_y.npy, checked alike; a training part
  // is not read.
  static absl::StatusOr<Dataset> LoadEvaluator(const std::string& directory);
  // A client of the synthetic problem, made from its seed. `clients` outlives make_again.
  static Dataset Make(const SyntheticClients& clients, uint32_t client);

  // Name of the files that `train` comes from, for messages.
  const char* train_name() const { return evaluator ? "test" : "train"; }
  // labels is true when y has an integer type.
  v1::DataSchema Schema() const;
  v1::HostedClient Hosted() const;
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_DATASET_H_
