// The gRPC service: decodes, calls the engine, encodes. Callback API: handlers
// never block. Thread-safe; must outlive the gRPC server that it is registered with.
#ifndef LEEWAY_SERVER_SERVICE_H_
#define LEEWAY_SERVER_SERVICE_H_

#include <grpcpp/impl/service_type.h>

#include <memory>

#include "server/engine.h"

namespace leeway {

// `engine` must outlive the service.
std::unique_ptr<grpc::Service> MakeService(Engine& engine);

}  // namespace leeway

#endif  // LEEWAY_SERVER_SERVICE_H_
