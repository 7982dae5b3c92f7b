// Which rank hosts which clients, and which computes them in one order. Nothing but speed depends
// on it.
#ifndef LEEWAY_ENGINES_MPI_SHARES_H_
#define LEEWAY_ENGINES_MPI_SHARES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace leeway {

// For each cost the rank that bears it: the largest first, each to the rank that has least
// so far, so that no rank has more than the mean and the largest cost together. Depends on the
// costs and their order alone.
std::vector<int> AssignByCost(absl::Span<const uint64_t> costs, int ranks);

// The rank that computes each client of an order. `homes` are the ranks that have the clients'
// data in memory, or -1 - rank where they have to stay; another rank has to load them first, at
// the cost `moving`. The largest first, each to where it is done first. All stay at home unless
// moving them makes the slowest rank's work at least 5 % shorter.
std::vector<int> AssignOrder(absl::Span<const double> costs, absl::Span<const int> homes,
                             double moving, int ranks);

// The ranks of the directories in `data`, by the size of their training data; -1 for a range of
// generated clients, which is everybody's in parts.
std::vector<int> RanksOf(const std::vector<std::string>& data, int ranks);
// The data of one rank: its directories and its part of each range. An error if it has none.
absl::StatusOr<std::vector<std::string>> ShareOf(const std::vector<std::string>& data,
                                                 absl::Span<const int> assigned, int rank,
                                                 int ranks);

}  // namespace leeway

#endif  // LEEWAY_ENGINES_MPI_SHARES_H_
