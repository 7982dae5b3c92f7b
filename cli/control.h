// `leeway run --control`: the same run on the real split and on a shuffled one, where the examples
// are dealt at random among clients of the same sizes. What shuffling takes away is due to how
// clients differ.
#ifndef LEEWAY_CLI_CONTROL_H_
#define LEEWAY_CLI_CONTROL_H_

#include <string>

#include "cli/run.h"
#include "records/verdict.h"

namespace leeway {

// The verdicts on both splits in one table, and what they say together in one sentence.
std::string ControlText(const Verdict& real, const Verdict& shuffled);

// Runs both, the second in OUT/control with its data beside it, and prints the comparison. What is
// there already is not done again. Returns the exit code.
int ControlCommand(const RunOptions& options);

}  // namespace leeway

#endif  // LEEWAY_CLI_CONTROL_H_
