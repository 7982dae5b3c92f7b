// The networks that a run can name (messages Mlp, Cnn and Lstm of run.proto).
// Their parameters are the tensors of LayoutOf, in its order.
#ifndef LEEWAY_CLIENT_NETWORKS_ARCHITECTURES_H_
#define LEEWAY_CLIENT_NETWORKS_ARCHITECTURES_H_

#include <memory>

#include "client/networks/network.h"
#include "common/network_layout.h"
#include "proto/federation.pb.h"

namespace leeway::networks {

// A network for batches of up to `examples` examples; 0: as many as keep the
// scratch space near 24 MB, from 16 to 256. Model and schema must have passed
// LayoutOf, and the model must be one of the three kinds.
template <typename T>
std::unique_ptr<Network<T>> MakeNetwork(const v1::Model& model, const v1::DataSchema& schema,
                                        Index examples = 0);

}  // namespace leeway::networks

#endif  // LEEWAY_CLIENT_NETWORKS_ARCHITECTURES_H_
