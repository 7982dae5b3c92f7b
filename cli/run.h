// `leeway run`: one run on this machine, with real processes. Starts a
// leeway-server and the leeway-clients that share the data directory's clients,
// shows the progress, and leaves nothing running behind, however it ends.
#ifndef LEEWAY_CLI_RUN_H_
#define LEEWAY_CLI_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace leeway {

struct RunOptions {
  std::string config;       // a RunConfig as text proto
  std::string data;         // a directory with one directory per client
  std::string out;          // where the run's state, models and logs go
  uint32_t processes = 0;   // client processes; 0: see DefaultProcesses
  uint32_t mpi = 0;         // instead: one MPI job with so many ranks
  bool tls = false;         // mutual TLS, with certificates made for this run
  bool check = false;       // only check config and, if given, data
  bool control = false;     // and on shuffled data, to compare (cli/control.h)
  bool brief = false;       // progress goes to stderr, and no results are printed
  std::string dashboard;    // PORT or HOST:PORT of a web page; empty: none
  std::string epochs_from;  // a run whose epochs are repeated; empty: none
};

// Exit codes.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitSignal = 128;  // plus the signal's number: 130 for Ctrl-C

// Runs to the end, reporting on stdout and errors on stderr. Returns the exit
// code. Call it before any thread is started.
int RunCommand(const RunOptions& options);

// The client directories in `data`, sorted: those that hold train_x.npy. The clients'
// names if `data` says how to make them on the fly.
absl::StatusOr<std::vector<std::string>> ClientDirectories(const std::string& data);

// The directory of the central test set: data/evaluator, if it holds a test part and
// no training part (with one it is a client like others). Else empty.
std::string EvaluatorDirectory(const std::string& data);

// One process per client up to 100, then two per core: beyond that more processes
// only cost memory.
uint32_t DefaultProcesses(size_t clients, uint32_t cores);

// Deals clients to processes in order, as evenly as possible; no share is empty.
std::vector<std::vector<std::string>> Deal(const std::vector<std::string>& clients,
                                           uint32_t processes);

}  // namespace leeway

#endif  // LEEWAY_CLI_RUN_H_
