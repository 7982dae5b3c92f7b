// Which clients take part in a round, and in which groups. Stateless: a cohort is
// a pure function of (seed, round, attempt, number of clients, size), so a
// restarted server draws the same one.
#ifndef LEEWAY_COMMON_SAMPLER_H_
#define LEEWAY_COMMON_SAMPLER_H_

#include <cstdint>
#include <vector>

namespace leeway {

// `size` distinct clients of 0 .. clients-1, uniform without replacement, in
// increasing order; all of them if size is 0 or at least `clients`. Time and
// memory grow with `size`, not with `clients`.
std::vector<uint32_t> SampleCohort(uint64_t seed, uint64_t round, uint32_t attempt,
                                   uint32_t clients, uint32_t size);

// All clients that SampleCohort leaves out, in the order in which they step in for
// members that have gone.
std::vector<uint32_t> DrawReserves(uint64_t seed, uint64_t round, uint32_t attempt,
                                   uint32_t clients, uint32_t size);

// The group, 0 .. groups-1, of each member of a cohort of `size`: a random
// permutation dealt round robin, so that group sizes differ by at most one.
std::vector<uint32_t> DrawGroups(uint64_t seed, uint64_t round, uint32_t attempt, uint32_t size,
                                 uint32_t groups);

}  // namespace leeway

#endif  // LEEWAY_COMMON_SAMPLER_H_
