// What an evaluation says of a model on test data, from federated sums alone: loss, accuracy,
// what the most frequent answer would have got, the area under the ROC curve. Pure functions;
// formulas are in docs/measures.md.
#ifndef LEEWAY_SERVER_TEST_MEASURES_H_
#define LEEWAY_SERVER_TEST_MEASURES_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/tally.h"
#include "proto/federation.pb.h"
#include "proto/record.pb.h"
#include "proto/run.pb.h"

namespace leeway {

// Threshold of a count that every client with a test part is above.
inline constexpr double kWithTestPart = -1;

// Classes that a model tells apart; 0: it is not a classifier, or its targets are not known here.
uint32_t ClassesOf(const v1::Model& model);

// Adds the sums of an evaluation to a task.
void AskForTests(const v1::Model& model, v1::Task& task);

// Fills what those sums tell, of the clients and of the evaluators.
void FillTests(const v1::Task& task, const Tally& tally, v1::RoundRecord& record);

// The area under the ROC curve from how many scores of each class are above thresholds, which
// rise: before them all are, after them none. Scores between two thresholds count as equal, so
// that it is off by at most half the share of pairs that fall there. NaN without both classes.
double AreaUnderCurve(double positives, absl::Span<const double> positives_above, double negatives,
                      absl::Span<const double> negatives_above);

}  // namespace leeway

#endif  // LEEWAY_SERVER_TEST_MEASURES_H_
