// `leeway drift`: the verdict on a run, with its evidence.
#ifndef LEEWAY_CLI_DRIFT_H_
#define LEEWAY_CLI_DRIFT_H_

#include <string>

#include "cli/json.h"
#include "cli/verdict.h"

namespace leeway {

// The sentence, a table by H, warnings.
std::string VerdictText(const Verdict& verdict);
// The JSON of `leeway drift --json`.
std::string VerdictJson(const Verdict& verdict);
// The same object as the writer's next value.
void WriteVerdict(const Verdict& verdict, JsonWriter& json);
// The evidence as a table: one row per H and step size.
std::string EvidenceCsv(const Verdict& verdict);

struct DriftOptions {
  std::string directory;
  bool json = false;
};

// Prints the verdict on stdout, or why there is none on stderr. Returns the exit
// code: 2 if there is no run or no verdict to be had from it.
int DriftCommand(const DriftOptions& options);

}  // namespace leeway

#endif  // LEEWAY_CLI_DRIFT_H_
