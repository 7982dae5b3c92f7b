// The training loss of the model that a run's last training ends with. Training rounds
// measure the loss of the models that they start from, so the last one's needs a round of its
// own, unless a later phase measures it anyway. Pure functions.
#ifndef LEEWAY_RECORDS_FINAL_LOSS_H_
#define LEEWAY_RECORDS_FINAL_LOSS_H_

#include <cstdint>
#include <optional>

#include "proto/record.pb.h"
#include "proto/run.pb.h"
#include "records/show.h"

namespace leeway {

// Does a run of this config end with a round for it? Not where the model is a file: clients
// with a training loop of their own know the loss of models that they train only.
bool EndsWithLossRound(const v1::RunConfig& config);

// The round that measured the loss of the model that training phase `phase` has ended with;
// null if there is none (yet).
const v1::RoundRecord* LossAfterTraining(const RunSummary& run, uint32_t phase);

// The same of the run's last training phase.
const v1::RoundRecord* FinalLoss(const RunSummary& run);

// Which phase has trained the model of this record, and how many rounds of it the model has
// behind it. Nothing if training has not left it (the initial model, w*).
struct Training {
  uint32_t phase = 0;
  uint64_t rounds = 0;
};
std::optional<Training> TrainingOf(const RunSummary& run, const v1::RoundRecord& record);

}  // namespace leeway

#endif  // LEEWAY_RECORDS_FINAL_LOSS_H_
