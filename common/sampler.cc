#include "common/sampler.h"

#include <algorithm>
#include <numeric>

#include "absl/container/flat_hash_map.h"
#include "common/rng.h"

namespace leeway {
namespace {

// The first `count` of a random permutation of 0 .. clients-1, by the first steps
// of a Fisher-Yates shuffle; `moved` holds the few positions that differ from the
// identity.
std::vector<uint32_t> ShuffledPrefix(uint64_t seed, uint64_t round, uint32_t attempt,
                                     uint32_t clients, uint32_t count) {
  Rng rng(seed, round, attempt, Purpose::kSampleCohort);
  absl::flat_hash_map<uint32_t, uint32_t> moved;
  const auto at = [&moved](uint32_t i) {
    const auto found = moved.find(i);
    return found == moved.end() ? i : found->second;
  };
  std::vector<uint32_t> prefix;
  prefix.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    const auto j = static_cast<uint32_t>(i + rng.Below(clients - i));
    prefix.push_back(at(j));
    moved[j] = at(i);
  }
  return prefix;
}

}  // namespace

std::vector<uint32_t> SampleCohort(uint64_t seed, uint64_t round, uint32_t attempt,
                                   uint32_t clients, uint32_t size) {
  std::vector<uint32_t> cohort;
  if (size == 0 || size >= clients) {
    cohort.resize(clients);
    std::iota(cohort.begin(), cohort.end(), 0u);
    return cohort;
  }
  cohort = ShuffledPrefix(seed, round, attempt, clients, size);
  std::sort(cohort.begin(), cohort.end());
  return cohort;
}

std::vector<uint32_t> DrawReserves(uint64_t seed, uint64_t round, uint32_t attempt,
                                   uint32_t clients, uint32_t size) {
  if (size == 0 || size >= clients) return {};
  const std::vector<uint32_t> all = ShuffledPrefix(seed, round, attempt, clients, clients);
  return {all.begin() + size, all.end()};
}

std::vector<uint32_t> DrawGroups(uint64_t seed, uint64_t round, uint32_t attempt, uint32_t size,
                                 uint32_t groups) {
  Rng rng(seed, round, attempt, Purpose::kGroups);
  std::vector<uint32_t> members(size);
  std::iota(members.begin(), members.end(), 0u);
  rng.Shuffle(members);
  std::vector<uint32_t> group(size);
  for (uint32_t i = 0; i < size; ++i) group[members[i]] = i % groups;
  return group;
}

}  // namespace leeway
