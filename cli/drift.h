// `leeway drift`: the verdict on a run, with its evidence.
#ifndef LEEWAY_CLI_DRIFT_H_
#define LEEWAY_CLI_DRIFT_H_

#include <string>

namespace leeway {

struct DriftOptions {
  std::string directory;
  std::string data;  // of the run, for advice; empty: not known
  bool json = false;
};

// Prints the verdict on stdout, or why there is none on stderr. Returns the exit
// code: 2 if there is no run or no verdict to be had from it.
int DriftCommand(const DriftOptions& options);

}  // namespace leeway

#endif  // LEEWAY_CLI_DRIFT_H_
