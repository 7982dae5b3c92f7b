// The measures of the paper, from federated sums alone. Pure functions; formulas
// are in docs/measures.md.
#ifndef LEEWAY_SERVER_MEASURES_H_
#define LEEWAY_SERVER_MEASURES_H_

#include <cstdint>

#include "common/layout.h"
#include "common/tally.h"
#include "proto/federation.pb.h"
#include "proto/run.pb.h"

namespace leeway {

// Fills what the task's sums can tell of a round: loss and its standard error,
// gradient norm, dissimilarity, drift at each asked h, test results. `population`
// is the number of clients the cohort was drawn from. What was not asked for is
// NaN (or absent).
void FillMeasures(const v1::Task& task, const Tally& tally, uint64_t population,
                  v1::RoundRecord& record);

// The unbiased estimate of |mean B|^2 over a population of `population` clients
// from a uniform sample of `sample` without replacement (docs/measures.md, 3):
//   (M-1)/M * (|sum B|^2 - sum |B|^2) / (S(S-1)) + 1/M * mean |B|^2.
// It may be negative; with S = M it is |mean B|^2 to the last digit.
double UnbiasedSquaredNorm(double squared_norm_of_sum, double sum_of_squared_norms, uint64_t sample,
                           uint64_t population);

}  // namespace leeway

#endif  // LEEWAY_SERVER_MEASURES_H_
