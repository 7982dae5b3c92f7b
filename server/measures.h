// The measures of the paper, from federated sums alone. Pure functions; formulas
// are in docs/measures.md.
#ifndef LEEWAY_SERVER_MEASURES_H_
#define LEEWAY_SERVER_MEASURES_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/sums.h"
#include "common/tally.h"
#include "proto/federation.pb.h"
#include "proto/record.pb.h"
#include "proto/run.pb.h"

namespace leeway {

// Groups of an evaluation: what clients answer on their own test parts, and what
// evaluators answer on a central one.
inline constexpr uint32_t kClientGroup = 0;
inline constexpr uint32_t kEvaluatorGroup = 1;

// What a cohort is drawn from.
struct Population {
  uint64_t clients = 0;
  uint64_t examples = 0;  // of all clients together: their total weight under EXAMPLES
};

// Adds to a task what the measures need beside the vectors that its phase asks for:
// losses (unless they are not wanted), squared norms, what encodings add. Weighting, encoding,
// rule and repeats must be set.
void AskForMeasures(v1::Task& task, bool losses = true);

// Fills what the task's sums can tell of a round: loss and its standard error,
// gradient norm, dissimilarity, drift at each asked h, test results. What was not
// asked for is NaN (or absent). `constants` may be null: then no classic bound.
void FillMeasures(const v1::Task& task, const Tally& tally, const Population& population,
                  const v1::ConstantsResult* constants, v1::RoundRecord& record);

// The unbiased estimate of |mean z|^2 over a population of `population` clients
// from a uniform sample of `sample` without replacement (docs/measures.md, 3):
//   (M-1)/M * (|sum z|^2 - sum |z|^2) / (S(S-1)) + 1/M * mean |z|^2.
// It may be negative; with S = M it is |mean z|^2 to the last digit.
double UnbiasedSquaredNorm(double squared_norm_of_sum, double sum_of_squared_norms, uint64_t sample,
                           uint64_t population);

// Half the length of the 95 % interval of an estimate from `sample` of `population`
// clients, given the same estimate without each one of the sample's random groups:
// delete-one-group jackknife, finite population, Student's t (docs/measures.md, 4).
// FillMeasures lets the upper half reach further.
// NaN with fewer than two groups.
double HalfInterval(absl::Span<const double> without, uint64_t sample, uint64_t population);

// The standard error of the mean of these values.
double ErrorOfMean(absl::Span<const double> values, double mean);

// t such that |T| <= t with probability 0.95 for Student's T with that many
// degrees of freedom, at least 1.
double StudentQuantile(uint64_t degrees);

}  // namespace leeway

#endif  // LEEWAY_SERVER_MEASURES_H_
