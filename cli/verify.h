// `leeway verify`: an independent check of what a run has left: it replays the
// records and says what, if anything, does not follow from what came before. It
// shares no code with the server but the reading of files and the sampling rule.
#ifndef LEEWAY_CLI_VERIFY_H_
#define LEEWAY_CLI_VERIFY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace leeway {

struct Verification {
  std::vector<std::string> problems;  // each names the round or file, and what was expected
  uint64_t rounds = 0;
  uint64_t reports = 0;
  uint64_t models = 0;
};

// NotFound if there is no run; DataLoss if its records cannot be read at all.
// The key is that of the seal of a server with --chain-key.
absl::StatusOr<Verification> VerifyRun(const std::string& directory,
                                       const std::string& chain_key = "");

}  // namespace leeway

#endif  // LEEWAY_CLI_VERIFY_H_
