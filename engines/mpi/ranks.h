// Ranks: the processes of one MPI job, and the few things that they do together. Every call
// is made by all ranks, in the same order. Rank 0 is the one that speaks to the server. For
// the thread that made it.
#ifndef LEEWAY_ENGINES_MPI_RANKS_H_
#define LEEWAY_ENGINES_MPI_RANKS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace leeway {

class Ranks {
 public:
  // Starts MPI. In the end the ranks wait for one another or, if this one has not finished,
  // the whole job is ended: the others would wait for it for ever.
  Ranks();
  ~Ranks();
  void Finish() { finished_ = true; }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool first() const { return rank_ == 0; }
  int nodes() const;

  // What rank 0 has, on all ranks.
  void Broadcast(std::string& text) const;
  // Many bytes travel to each node once, and there from rank to rank.
  void Broadcast(absl::Span<std::byte> bytes) const;
  uint64_t Broadcast(uint64_t value) const;
  // The same, without taking up a core while it waits.
  uint64_t BroadcastPatiently(uint64_t value) const;
  // Every rank's text, by rank; on rank 0 only.
  std::vector<std::string> Gather(const std::string& text) const;
  // Leaves on rank 0 the sum over ranks, modulo 2^64. Elsewhere `values` stay as they are. Call
  // it when all ranks are ready: it waits for them at full speed.
  void Sum(absl::Span<int64_t> values) const;
  // On all ranks, when the last has come: OK if all are, else the error of the first rank that has
  // one, which it names.
  absl::Status Agree(const absl::Status& own) const;

 private:
  struct Nodes;  // communicators within a node and between nodes

  int rank_ = 0;
  int size_ = 1;
  bool finished_ = false;
  std::unique_ptr<Nodes> nodes_;
};

}  // namespace leeway

#endif  // LEEWAY_ENGINES_MPI_RANKS_H_
