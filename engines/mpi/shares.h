// Which rank hosts which clients.
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

// The data of one rank: client directories by the size of their training data; a range of
// generated clients in equal parts. An error if a rank would have none.
absl::StatusOr<std::vector<std::string>> ShareOf(const std::vector<std::string>& data, int rank,
                                                 int ranks);

}  // namespace leeway

#endif  // LEEWAY_ENGINES_MPI_SHARES_H_
