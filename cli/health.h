// `leeway health`: asks a server's standard gRPC health service; for containers and
// scripts that wait for a server.
#ifndef LEEWAY_CLI_HEALTH_H_
#define LEEWAY_CLI_HEALTH_H_

#include <string>

#include "common/credentials.h"

namespace leeway {

struct HealthOptions {
  std::string server;  // host:port
  TlsFiles tls;
  bool insecure_anywhere = false;
  double seconds = 5;  // to wait for an answer
};

// Prints "serving", or why not on stderr. Returns the exit code: 1 if it does not
// serve.
int HealthCommand(const HealthOptions& options);

}  // namespace leeway

#endif  // LEEWAY_CLI_HEALTH_H_
