// Theorem 2 of the paper as numbers: its bound on |w_t - w*|^2, term by term, for
// a training phase, and whether its conditions hold. Pure functions.
#ifndef LEEWAY_RECORDS_THEORY_H_
#define LEEWAY_RECORDS_THEORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/record.pb.h"
#include "proto/run.pb.h"
#include "records/show.h"

namespace leeway {

// (1 - alpha eta H mu / 2)^t |w_0 - w*|^2 + variance + iterate bias + 20 rho^2 / mu^2
struct Theorem2 {
  double alpha = 0;  // server rate
  double eta = 0;    // local step size
  uint32_t h = 0;
  double mu = 0;             // smallest of any client
  double smoothness = 0;     // L: largest of any client
  double rate = 0;           // 1 - alpha eta H mu / 2, the first term's factor per round
  double initial = 0;        // |w_0 - w*|^2
  double variance_term = 0;  // 2 alpha eta H / mu * Var; 0 for full batches
  double bias_term = 0;      // 20 / mu^2 * E|delta|^2; 0 for full batches
  double floor = 0;          // 20 rho^2 / mu^2
  // What the theorem asks for and this phase does not have; empty: it holds.
  std::vector<std::string> broken;
  // What a reader should know though it holds.
  std::vector<std::string> notes;

  bool holds() const { return broken.empty(); }
  // The bound after t rounds.
  double At(double t) const;
};

// The bound for the training phase that these records are of (not empty, one
// phase, in order). FailedPrecondition, with the remedy, if something that it is
// made of was not measured.
absl::StatusOr<Theorem2> TheoryOf(const RunSummary& run,
                                  const std::vector<v1::RoundRecord>& rounds);

// 20 rho^2 / mu^2 with the smallest mu of any client; NaN if mu is not positive, or
// rho^2 not known.
double DriftFloor(double drift_squared, const v1::ConstantsResult& constants);

// Why eta is too long a step for the theory, which asks for
// eta <= min(1/L, 1/(mu H)); empty if it is not.
std::string StepSizeProblem(double eta, uint32_t h, const v1::ConstantsResult& constants);

}  // namespace leeway

#endif  // LEEWAY_RECORDS_THEORY_H_
