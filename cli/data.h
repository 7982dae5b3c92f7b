// `leeway data synthetic`: the data set of the paper's appendix. Client c has
// inputs x ~ U(0, nu_c) per coordinate with nu_c ~ U(0, 5), and targets
// y = <w*, x> + eps with w* ~ N(0, I), eps ~ N(0, noise_sd^2). The inputs depend
// on the seed and the client's name alone, so that noise levels can be compared.
#ifndef LEEWAY_CLI_DATA_H_
#define LEEWAY_CLI_DATA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace leeway {

struct SyntheticOptions {
  std::string out;
  uint32_t clients = 100;
  uint32_t samples = 100;  // per client
  uint32_t dimension = 30;
  double noise_sd = 0.3;
  uint64_t seed = 0;
};

// One client's examples.
struct SyntheticClient {
  double scale = 0;       // nu_c
  std::vector<double> x;  // [samples, dimension], row by row
  std::vector<double> y;  // [samples]
};

// The w* that generates the targets. It is not the minimiser of the empirical
// loss, which is near it.
std::vector<double> SyntheticTruth(const SyntheticOptions& options);

SyntheticClient MakeSyntheticClient(const SyntheticOptions& options,
                                    const std::vector<double>& truth, absl::string_view id);

// "client_007": padded so that names sort like numbers.
std::string SyntheticClientName(uint32_t client, uint32_t clients);

// Writes <out>/<client>/train_x.npy, train_y.npy and <out>/truth.npy. All or
// nothing: the directory appears when it is complete. Refuses one that exists.
absl::Status WriteSynthetic(const SyntheticOptions& options);

}  // namespace leeway

#endif  // LEEWAY_CLI_DATA_H_
