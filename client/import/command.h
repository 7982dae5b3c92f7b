// The part of `leeway data` that deals with files people bring: import,
// partition and describe.
#ifndef LEEWAY_CLIENT_IMPORT_COMMAND_H_
#define LEEWAY_CLIENT_IMPORT_COMMAND_H_

#include "CLI/CLI.hpp"

namespace leeway {

// Adds the subcommands to `data`. Their callbacks set *exit_code (0: done, 1: failed,
// 2: wrong usage or data, 128 plus a signal that stopped it), print errors to stderr as
// "leeway: ..." and throw nothing. Those that write do so in a child process.
// `exit_code` must live until `data` has been parsed.
void AddImportCommands(CLI::App& data, int* exit_code);

}  // namespace leeway

#endif  // LEEWAY_CLIENT_IMPORT_COMMAND_H_
