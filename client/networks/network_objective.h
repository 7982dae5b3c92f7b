// The loss of a network on one client's data, in float32.
//
// Data stays where it is mapped; a batch is gathered into the network's scratch
// space. That space belongs to the calling thread, not to the client: a process
// that hosts a thousand clients on two threads holds two networks.
//
// Inputs: numbers for Mlp and Cnn (bytes are divided by 255), tokens for Lstm.
// Dropout acts on batches only: the loss and gradient over all rows are those of
// F_c itself. What is dropped follows from the model, the rows and the client
// alone, so a repeated step drops the same.
#ifndef LEEWAY_CLIENT_NETWORKS_NETWORK_OBJECTIVE_H_
#define LEEWAY_CLIENT_NETWORKS_NETWORK_OBJECTIVE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "client/dataset.h"
#include "client/objective.h"
#include "proto/run.pb.h"

namespace leeway {

// For models of kind mlp, cnn or lstm that have passed LayoutOf with the data's
// schema. Fails with InvalidArgument, naming file and row, if a label or token is
// out of range or of the wrong type.
absl::StatusOr<std::unique_ptr<Objective<float>>> MakeNetworkObjective(const v1::Model& model,
                                                                       const Dataset& data);

}  // namespace leeway

#endif  // LEEWAY_CLIENT_NETWORKS_NETWORK_OBJECTIVE_H_
