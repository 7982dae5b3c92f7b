// The gRPC service: decodes, calls the engine, encodes. Callback API: handlers
// never block. Thread-safe; must outlive the gRPC server that it is registered with.
#ifndef LEEWAY_SERVER_SERVICE_H_
#define LEEWAY_SERVER_SERVICE_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/server_builder.h>

#include <memory>

#include "server/engine.h"
#include "server/gate.h"

namespace leeway {

// What keeps a server's memory and threads bounded, whoever calls: message size,
// windows, one memory quota for all connections, no compression (a small message
// must not become a large one), time for handshakes.
void LimitResources(grpc::ServerBuilder& builder);

// `engine` must outlive the service. The gate decides who may call.
std::unique_ptr<grpc::Service> MakeService(Engine& engine,
                                           std::unique_ptr<Gate> gate = std::make_unique<Gate>());

// Refuses and counts calls of methods that do not exist. Like the service, it must
// outlive the server, and the engine it.
std::unique_ptr<grpc::CallbackGenericService> MakeUnknownMethods(Engine& engine);

}  // namespace leeway

#endif  // LEEWAY_SERVER_SERVICE_H_
