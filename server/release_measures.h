// What a release test and the verdict's rule measure, from federated sums alone: the loss of
// the best constant answer, and a difference of losses that every client takes of its own two.
// Pure functions; formulas are in docs/measures.md.
#ifndef LEEWAY_SERVER_RELEASE_MEASURES_H_
#define LEEWAY_SERVER_RELEASE_MEASURES_H_

#include <cstdint>
#include <vector>

#include "common/tally.h"
#include "proto/federation.pb.h"
#include "proto/record.pb.h"
#include "proto/run.pb.h"
#include "server/phase.h"

namespace leeway {

// Asks for what the training targets are; of a model in a file nobody knows what they mean,
// and nothing is asked.
void AskForTargets(const v1::Model& model, v1::Task& task);
// The loss of the best constant answer, without a penalty: for classes the entropy of their
// shares, for regression half the variance. NaN if the clients do not say.
double ConstantLoss(const v1::Model& model, const v1::Task& task, const Tally& tally);
// The same; where nobody knows it, the loss of the round's model, the initial one.
double ConstantOrInitialLoss(const v1::Model& model, const RoundPlan& plan, const Tally& tally);

// One comparison of two models: of each client's losses at both.
struct Comparison {
  double synchronised_loss = 0;    // at the model, the end of branch B
  double loss_standard_error = 0;  // of it, over clients
  double difference = 0;           // how much larger the loss at the end of branch A is
  double standard_error = 0;       // of the difference, over clients; NaN of one client
  uint32_t losers = 0;             // clients whose difference is positive
  uint32_t clients = 0;
};
// `record` has the round's measures already.
Comparison ReadComparison(const v1::Task& task, const Tally& tally, const v1::RoundRecord& record);

// The result of a test from its comparisons, one for each repeat, and the losses before both
// branches and of the best constant answer. h, step size and rounds are not set.
v1::ReleaseResult Conclude(const std::vector<Comparison>& repeats, double start_loss,
                           double constant_loss, bool batches);

}  // namespace leeway

#endif  // LEEWAY_SERVER_RELEASE_MEASURES_H_
