// What a config may ask for when its model is a network: no phase that needs a convex
// loss, and step sizes in numbers.
#ifndef LEEWAY_RECORDS_NETWORK_CONFIG_H_
#define LEEWAY_RECORDS_NETWORK_CONFIG_H_

#include <string>

#include "absl/status/status.h"
#include "proto/run.pb.h"

namespace leeway {

// Other models are convex: their loss has one minimum, L and mu.
bool IsNetwork(const v1::Model& model);
// The field of the model's kind: "cnn".
std::string ModelName(const v1::Model& model);

// One error for everything that a network cannot have, so that nobody is sent from one
// error to the next. The message begins with the first field.
absl::Status CheckNetworkPhases(const v1::RunConfig& config);

}  // namespace leeway

#endif  // LEEWAY_RECORDS_NETWORK_CONFIG_H_
