// `leeway study`: from data to the answer in one command. It describes and checks the data, writes
// the config of `leeway init`, runs it, and prints the verdict and where the report is.
#ifndef LEEWAY_CLI_STUDY_H_
#define LEEWAY_CLI_STUDY_H_

#include <CLI/CLI.hpp>

namespace leeway {

// Adds the command; it sets *exit_code, which must live until `app` has been parsed.
CLI::App* AddStudyCommand(CLI::App& app, int* exit_code);

}  // namespace leeway

#endif  // LEEWAY_CLI_STUDY_H_
