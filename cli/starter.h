// `leeway init`: a commented config to start from, chosen by the data at hand.
#ifndef LEEWAY_CLI_STARTER_H_
#define LEEWAY_CLI_STARTER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace leeway {

struct StarterOptions {
  std::string data;  // a directory with one directory per client
  std::string out;   // the config to write; must not exist
};

// What the choice of a model rests on.
struct DataFacts {
  std::string directory;
  uint64_t clients = 0;
  uint64_t examples = 0;        // of all clients
  std::vector<uint64_t> shape;  // of one example's input
  bool labels = false;          // targets are integers
  bool sequences = false;       // and there is one for every step of a sequence
  uint64_t classes = 0;         // largest label plus one, over all clients
  bool test = false;            // all clients have test parts
};

// Loads every client's data, so that what is wrong with it is said now.
absl::StatusOr<DataFacts> ReadFacts(const std::string& data);
// The config's text.
std::string StarterConfig(const DataFacts& facts);
// Writes it. Returns the exit code.
int InitCommand(const StarterOptions& options);

}  // namespace leeway

#endif  // LEEWAY_CLI_STARTER_H_
