// How far from the optimum a run's trainings have ended, beside the verdict, which is about where
// FedAvg settles in the end; and whether the two contradict each other. Pure functions.
#ifndef LEEWAY_RECORDS_TRAINED_H_
#define LEEWAY_RECORDS_TRAINED_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "records/evidence.h"
#include "records/show.h"

namespace leeway {

// The model that a training phase has ended with.
struct TrainedModel {
  uint32_t phase = 0;
  uint64_t rounds = 0;  // behind it
  uint32_t h = 0;       // local steps; 0: epochs
  double step_size = 0;
  double loss = 0;
  double gap = 0;            // F(w) - F(w*)
  double lost = 0;           // the gap's share of what the model explains
  bool contradicts = false;  // what the verdict says of the same H and step size
  std::string text;          // all that in a sentence or two
};

// Of every training whose loss over all clients is known; none without w*, or where it is not
// known what the model explains.
std::vector<TrainedModel> CollectTrained(const RunSummary& run,
                                         const std::vector<Evidence>& evidence);
nlohmann::ordered_json TrainedJson(const TrainedModel& one);

}  // namespace leeway

#endif  // LEEWAY_RECORDS_TRAINED_H_
