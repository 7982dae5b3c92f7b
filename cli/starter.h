// `leeway init`: a commented config to start from, chosen by the data at hand.
#ifndef LEEWAY_CLI_STARTER_H_
#define LEEWAY_CLI_STARTER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/dataset.h"
#include "proto/federation.pb.h"

namespace leeway {

// The models that `leeway init --model` knows.
inline constexpr const char* kStarterModels[] = {"linear", "softmax", "mlp", "cnn", "lstm"};

struct StarterOptions {
  std::string data;   // a directory with one directory per client
  std::string out;    // the config to write; must not exist
  std::string model;  // one of kStarterModels; empty: by the data
};

// What the choice of a model rests on.
struct DataFacts {
  std::string directory;
  uint64_t clients = 0;
  uint64_t examples = 0;           // of all clients
  std::vector<uint64_t> shape;     // of one example's input
  bool labels = false;             // targets are integers
  bool synthetic = false;          // made by `leeway data synthetic`
  bool sequences = false;          // and there is one for every step of a sequence
  uint64_t classes = 0;            // largest label plus one, over all clients
  uint64_t clients_with_test = 0;  // clients that have a test part
  bool evaluator = false;          // there is a central test set
  std::vector<std::string> notes;  // what to know about the data before training on them

  v1::DataSchema Schema() const;
};

// Loads every client's data, so that what is wrong with it is said now. `visit` sees
// each client once (of clients that are made on the fly only the first); its error ends
// the reading.
absl::StatusOr<DataFacts> ReadFacts(const std::string& data,
                                    const std::function<absl::Status(const Dataset&)>& visit = {});
// The config's text; `model` as in StarterOptions. An error if the data do not fit it.
absl::StatusOr<std::string> StarterConfig(const DataFacts& facts, const std::string& model);
// Writes it. Returns the exit code.
int InitCommand(const StarterOptions& options);

}  // namespace leeway

#endif  // LEEWAY_CLI_STARTER_H_
