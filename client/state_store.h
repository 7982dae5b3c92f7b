// StateStore: what clients keep between the rounds of a run, in files of this process's own.
// Of each client it holds the state after the last round that counted and the one after the
// round that was computed last: only the server knows whether that one will count, and says
// so with the next order. Get and Put of different clients are for several threads at a time,
// Flush is not.
//
// A run has a directory, a client a file in it: two records, each
//   round     uint64    0: there is none
//   size      uint64    of the state in bytes
//   hash      uint64    XXH3-64 of the state
//   state     bytes
#ifndef LEEWAY_CLIENT_STATE_STORE_H_
#define LEEWAY_CLIENT_STATE_STORE_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace leeway {

class StateStore {
 public:
  struct State {
    uint64_t round = 0;  // after which it stands
    std::string bytes;
  };

  // Nothing is created before the first Put.
  explicit StateStore(std::string directory) : directory_(std::move(directory)) {}

  // A client's state after `round`. NotFound, with the remedy, if it is not here.
  absl::StatusOr<std::string> Get(absl::string_view run, absl::string_view client,
                                  uint64_t round) const;
  // Replaces what is kept of a client, once Flush has returned.
  absl::Status Put(absl::string_view run, absl::string_view client, const State& counted,
                   const State& computed);
  // What was put is durable, and counts, when this has returned.
  absl::Status Flush();

 private:
  std::string PathOf(absl::string_view run, absl::string_view client) const;
  absl::Status MakeDirectory(absl::string_view run);

  const std::string directory_;
  std::mutex mu_;
  std::string made_;                    // the run whose directory is there; guarded by mu_
  std::vector<std::string> unflushed_;  // paths; guarded by mu_
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_STATE_STORE_H_
