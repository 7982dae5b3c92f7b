// `leeway dashboard`: a run's records as a web page, finished or still growing.
#ifndef LEEWAY_CLI_DASHBOARD_H_
#define LEEWAY_CLI_DASHBOARD_H_

#include <string>

namespace leeway {

struct DashboardOptions {
  std::string directory;
  std::string listen = "127.0.0.1:8760";
};

// Serves until SIGINT or SIGTERM. Returns the exit code: 2 if there is no run. Call
// it before any thread is started.
int DashboardCommand(const DashboardOptions& options);

}  // namespace leeway

#endif  // LEEWAY_CLI_DASHBOARD_H_
