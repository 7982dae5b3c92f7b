// The paper's synthetic problem. Client c has inputs x ~ U(0, nu_c) per coordinate
// with nu_c ~ U(0, 5), and targets y = <w*, x> + eps with w* ~ N(0, I),
// eps ~ N(0, noise_sd^2). The inputs depend on the seed and the client's name
// alone, so that noise levels can be compared, and any client can be made without
// the others. Options make the other regimes of the paper's Section 4, and conflict.
#ifndef LEEWAY_COMMON_SYNTHETIC_H_
#define LEEWAY_COMMON_SYNTHETIC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace leeway {

struct SyntheticProblem {
  uint32_t clients = 100;
  uint32_t samples = 100;  // per client
  uint32_t dimension = 30;
  double noise_sd = 0.3;
  // Of w*, per coordinate. With 0, w* = 0 is the model that training starts from, so
  // that a probe at INITIAL measures at the w* that generates the targets.
  double truth_sd = 1;
  uint64_t seed = 0;
  // Client c's targets come from w* + conflict (nu_c - mean nu) u: what clients want
  // then depends on their inputs' scale, and so on their Hessian. u is the unit
  // vector along (1, ..., 1), the mean input, in which Hessians differ most. Along a
  // u orthogonal to it, they differ so little that the same clients hardly conflict.
  double conflict = 0;
  // All clients have the same data.
  bool identical = false;
  // All clients have the same inputs, so the same Hessian; targets of client c
  // come from w* + N(0, I).
  bool equal_hessians = false;
  // 0: off. Else inputs are centred, nu_c ~ U(4, 5), and coordinates are scaled so
  // that expected Hessians have this condition number. Samples spread it further.
  double condition = 0;
};

// Errors name the flag of `leeway data synthetic`.
absl::Status CheckSynthetic(const SyntheticProblem& problem);

// One client's examples.
struct SyntheticClient {
  double scale = 0;       // nu_c
  std::vector<double> x;  // [samples, dimension], row by row
  std::vector<double> y;  // [samples]
};

// The w* that generates the targets. It is not the minimiser of the empirical
// loss, which is near it.
std::vector<double> SyntheticTruth(const SyntheticProblem& problem);

// `truth` generates this client's targets.
SyntheticClient MakeSyntheticClient(const SyntheticProblem& problem,
                                    const std::vector<double>& truth, absl::string_view id);

// "client_007": padded so that names sort like numbers.
std::string SyntheticClientName(uint32_t client, uint32_t clients);

// All clients of a problem, each made when it is asked for. Thread-safe.
class SyntheticClients {
 public:
  explicit SyntheticClients(const SyntheticProblem& problem);

  const SyntheticProblem& problem() const { return problem_; }
  const std::vector<double>& truth() const { return truth_; }
  std::string Name(uint32_t client) const { return SyntheticClientName(client, problem_.clients); }
  SyntheticClient Make(uint32_t client) const;

 private:
  SyntheticProblem problem_;
  std::vector<double> truth_;
  double mean_scale_ = 0;  // of all clients; for conflict only
};

// The file, in place of client directories, that says how to make them on the fly.
inline constexpr char kSyntheticFile[] = "synthetic.json";
std::string SyntheticJson(const SyntheticProblem& problem);
absl::StatusOr<SyntheticProblem> ReadSynthetic(const std::string& path);

}  // namespace leeway

#endif  // LEEWAY_COMMON_SYNTHETIC_H_
