// Which samples of a pool go to which client: the partition rules, as pure
// functions of sample counts or labels and a seeded stream. In each result every
// sample of the pool appears exactly once.
#ifndef LEEWAY_CLIENT_IMPORT_ASSIGNMENT_H_
#define LEEWAY_CLIENT_IMPORT_ASSIGNMENT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/rng.h"

namespace leeway {

// Sample numbers by client.
using Assignment = std::vector<std::vector<uint32_t>>;

// Shuffled and dealt so that client c gets sizes[c] samples.
Assignment AssignSizes(absl::Span<const uint64_t> sizes, Rng& rng);

// `samples` in `clients` sizes that differ by at most one.
std::vector<uint64_t> EqualSizes(uint64_t samples, uint64_t clients);

// Sizes in proportion to exp(sigma·N(0,1)), each at least 1. samples >= clients.
std::vector<uint64_t> LogNormalSizes(uint64_t samples, uint64_t clients, double sigma, Rng& rng);

// Each class is shared out in proportions drawn from Dirichlet(alpha, ..., alpha)
// over the clients (Hsu, Qi, Brown 2019, per class).
Assignment AssignDirichlet(absl::Span<const int64_t> labels, uint64_t clients, double alpha,
                           Rng& rng);

// Sorted by label, cut into clients·shards_per_client shards of equal size,
// dealt at random (McMahan et al. 2017).
Assignment AssignShards(absl::Span<const int64_t> labels, uint64_t clients,
                        uint64_t shards_per_client, Rng& rng);

// Another pool (the test part), each class shared out in the proportions in which
// `train` holds it; classes that `train` lacks follow the clients' sizes. Empty
// label spans mean one class.
Assignment FollowShares(const Assignment& train, absl::Span<const int64_t> train_labels,
                        absl::Span<const int64_t> labels, uint64_t samples, Rng& rng);

// Moves samples from the largest clients to those with fewer than `least`;
// returns how many were moved.
uint64_t FillUp(Assignment* assignment, uint64_t least);

}  // namespace leeway

#endif  // LEEWAY_CLIENT_IMPORT_ASSIGNMENT_H_
