// `leeway data synthetic`: writes the paper's synthetic problem (common/synthetic.h).
#ifndef LEEWAY_CLI_DATA_H_
#define LEEWAY_CLI_DATA_H_

#include <string>

#include "absl/status/status.h"
#include "common/synthetic.h"

namespace leeway {

struct SyntheticOptions : SyntheticProblem {
  std::string out;
  bool on_the_fly = false;  // write how to make the clients, not the clients
};

// Where a process with this id writes before `out` is complete.
std::string TemporaryPath(const std::string& out, int process);

// Writes <out>/truth.npy and <out>/<client>/train_x.npy, train_y.npy or, on the fly,
// <out>/synthetic.json. All or nothing: the directory appears when it is complete.
// Refuses one that exists.
absl::Status WriteSynthetic(const SyntheticOptions& options);

}  // namespace leeway

#endif  // LEEWAY_CLI_DATA_H_
