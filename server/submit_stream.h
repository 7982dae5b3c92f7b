// The server's side of one Submit call: takes reports apart as their parts come in,
// has each counted by the engine, and answers with its receipt or the end of the
// stream. Large payloads wait unread for a staging buffer; a report that takes too
// long is refused.
#ifndef LEEWAY_SERVER_SUBMIT_STREAM_H_
#define LEEWAY_SERVER_SUBMIT_STREAM_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "server/engine.h"
#include "server/gate.h"
#include "server/staging.h"

namespace leeway {

// Owns itself until gRPC is done with it. Engine and staging must outlive it.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StartSubmit(Engine& engine,
                                                                         Staging& staging,
                                                                         Visit visit);

}  // namespace leeway

#endif  // LEEWAY_SERVER_SUBMIT_STREAM_H_
