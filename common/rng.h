// Portable counter-based random numbers (Philox4x32-10, of Random123). Every stream is named
// by (seed, round, client, purpose), so it needs no state that could be lost
// and does not depend on threads, processes or the standard library.
#ifndef LEEWAY_COMMON_RNG_H_
#define LEEWAY_COMMON_RNG_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace leeway {

// What a stream of random numbers is for. Numbers are part of the format: a
// change would change results, so only append.
enum class Purpose : uint32_t {
  kSampleCohort = 1,
  kBatchOrder = 2,
  kInitialModel = 3,
  kGroups = 4,
  kDropout = 5,
  kSyntheticTruth = 6,
  kSyntheticClient = 7,
  kBackoff = 8,
  kPartition = 9,
  kRounding = 10,
  kTest = 11,
  kLanczos = 12,
  kFineTuning = 13,
  kSigns = 14,
};

// One Philox4x32-10 block (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011): exposed so that it can be checked against the published test vectors.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A 64-bit name for a client, the same on every platform.
uint64_t ClientKey(absl::string_view client_id);

// A stream of random numbers. Not thread-safe; cheap to make and to copy.
class Rng {
 public:
  Rng(uint64_t seed, uint64_t round, uint64_t client_key, Purpose purpose);

  // Four words that name the stream: Philox's key and the upper half of its counter.
  std::array<uint32_t, 4> Name() const { return {key_[0], key_[1], counter_[2], counter_[3]}; }
  uint64_t Next64();
  // Uniform in [0, 1), 53 bits.
  double Uniform();
  // Uniform in [0, bound), without bias. bound > 0.
  uint64_t Below(uint64_t bound);
  // Standard normal.
  double Normal();
  // Gamma(shape, 1), shape > 0 (for Dirichlet partitions).
  double Gamma(double shape);
  // Shuffles in place (Fisher-Yates).
  void Shuffle(std::vector<uint32_t>& items);

 private:
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 4> block_{};
  int used_ = 4;  // words of block_ already given out
};

}  // namespace leeway

#endif  // LEEWAY_COMMON_RNG_H_
