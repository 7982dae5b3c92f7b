// The server's side of one Observe call: sends what is new, one piece after the other,
// each when the one before it has left. So a slow observer costs one piece of memory and
// its own delay.
#ifndef LEEWAY_SERVER_OBSERVE_STREAM_H_
#define LEEWAY_SERVER_OBSERVE_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/federation.pb.h"
#include "server/engine.h"
#include "server/gate.h"

namespace leeway {

// Owns itself until gRPC is done with it. The engine must outlive it. ResourceExhausted if
// too many watch already.
absl::StatusOr<grpc::ServerWriteReactor<v1::Observation>*> StartObserve(Engine& engine, Visit visit,
                                                                        uint64_t after_round);

}  // namespace leeway

#endif  // LEEWAY_SERVER_OBSERVE_STREAM_H_
