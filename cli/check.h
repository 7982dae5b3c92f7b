// `leeway run --check`: whether a config is in order and fits the data, and what the
// run will cost. Finds, without starting anything, what server and clients would refuse.
#ifndef LEEWAY_CLI_CHECK_H_
#define LEEWAY_CLI_CHECK_H_

#include <string>

#include "absl/status/statusor.h"
#include "cli/starter.h"
#include "common/model_layout.h"
#include "proto/run.pb.h"

namespace leeway {

// Whether a config fits what is known of the data: the number of clients, the shape
// of the inputs, test data for every evaluation. Returns the model's layout. Errors name
// the field and the remedy.
absl::StatusOr<ModelLayout> CheckAgainst(const v1::RunConfig& config, const DataFacts& facts);

// "112 to 1818 rounds, about 12 s of computing on 2 cores", by the time of a gradient of
// the first client now; the rounds alone if that is not known.
std::string CostText(const v1::RunConfig& config, const std::string& data, uint64_t clients);

// The estimate in words: rounds, the bytes of a training round, time.
std::string EstimateText(const v1::RunConfig& config, const ModelLayout& layout,
                         const DataFacts& facts);

// Checks the config and, unless `data` is empty, every client's data, and prints what
// the run will do. Returns the exit code.
int CheckCommand(const std::string& config, const std::string& data);

}  // namespace leeway

#endif  // LEEWAY_CLI_CHECK_H_
