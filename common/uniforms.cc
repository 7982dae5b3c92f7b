#include "common/uniforms.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace leeway {
namespace {

#ifdef __AVX2__
constexpr uint64_t kAtOnce = 8;  // blocks
constexpr int kRounds = 10;

// The keys of all rounds, one in each lane of 64 bits.
struct Keys {
  Keys(uint32_t key0, uint32_t key1) {
    for (int round = 0; round < kRounds; ++round) {
      first[round] = _mm256_set1_epi64x(key0);
      second[round] = _mm256_set1_epi64x(key1);
      key0 += 0x9e3779b9;
      key1 += 0xbb67ae85;
    }
  }
  __m256i first[kRounds], second[kRounds];
};

// A round of Random123's Philox4x32 for four blocks, one in each lane of 64 bits. Of a lane the
// lower half counts; what gathers in the upper one is never read.
inline void Round(__m256i (&c)[4], __m256i key0, __m256i key1) {
  const __m256i product0 = _mm256_mul_epu32(c[0], _mm256_set1_epi64x(0xd2511f53));
  const __m256i product1 = _mm256_mul_epu32(c[2], _mm256_set1_epi64x(0xcd9e8d57));
  c[0] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product1, 32), c[1]), key0);
  c[1] = product1;
  c[2] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product0, 32), c[3]), key1);
  c[3] = product0;
}

// The upper 53 of the 64 bits (high, low), times 2^-53. Each half is put behind the leading
// bit of a large number; all steps are exact.
__m256d Unit(__m256i high, __m256i low) {
  const __m256i bits =
      _mm256_srli_epi64(_mm256_blend_epi32(low, _mm256_slli_epi64(high, 32), 0xaa), 11);
  const __m256i magic_low = _mm256_castpd_si256(_mm256_set1_pd(0x1p52));
  const __m256i magic_high = _mm256_castpd_si256(_mm256_set1_pd(0x1p84));
  const __m256d lower = _mm256_sub_pd(
      _mm256_castsi256_pd(_mm256_blend_epi32(bits, magic_low, 0xaa)), _mm256_set1_pd(0x1p52));
  const __m256d upper =
      _mm256_sub_pd(_mm256_castsi256_pd(_mm256_or_si256(_mm256_srli_epi64(bits, 32), magic_high)),
                    _mm256_set1_pd(0x1p84));
  return _mm256_mul_pd(_mm256_add_pd(upper, lower), _mm256_set1_pd(0x1p-53));
}

// Writes the numbers of four blocks.
inline void Store(const __m256i (&c)[4], double* out) {
  const __m256d even = Unit(c[1], c[0]);
  const __m256d odd = Unit(c[3], c[2]);
  const __m256d low = _mm256_unpacklo_pd(even, odd);   // of blocks 0 and 2
  const __m256d high = _mm256_unpackhi_pd(even, odd);  // of blocks 1 and 3
  _mm256_storeu_pd(out, _mm256_permute2f128_pd(low, high, 0x20));
  _mm256_storeu_pd(out + 4, _mm256_permute2f128_pd(low, high, 0x31));
}

// The numbers of eight blocks from `first` on: two times four, so that one is multiplied
// while the other waits for its products.
void FillEight(const std::array<uint32_t, 4>& name, const Keys& keys, uint64_t first, double* out) {
  const __m256i block = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<int64_t>(first)),
                                         _mm256_setr_epi64x(0, 1, 2, 3));
  const __m256i next = _mm256_add_epi64(block, _mm256_set1_epi64x(4));
  const __m256i upper0 = _mm256_set1_epi64x(name[2]), upper1 = _mm256_set1_epi64x(name[3]);
  __m256i a[4] = {block, _mm256_srli_epi64(block, 32), upper0, upper1};
  __m256i b[4] = {next, _mm256_srli_epi64(next, 32), upper0, upper1};
#pragma GCC unroll 10
  for (int round = 0; round < kRounds; ++round) {
    Round(a, keys.first[round], keys.second[round]);
    Round(b, keys.first[round], keys.second[round]);
  }
  Store(a, out);
  Store(b, out + 8);
}
#endif

double Unit(uint32_t low, uint32_t high) {
  return static_cast<double>((low | (uint64_t{high} << 32)) >> 11) * 0x1p-53;
}

}  // namespace

std::array<double, 2> Uniforms::Block(uint64_t block) const {
  const std::array<uint32_t, 4> words = Philox4x32(
      {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), name_[2], name_[3]},
      {name_[0], name_[1]});
  return {Unit(words[0], words[1]), Unit(words[2], words[3])};
}

void Uniforms::FillBlocks(uint64_t first, uint64_t blocks, double* out) const {
  uint64_t i = 0;
#ifdef __AVX2__
  const Keys keys(name_[0], name_[1]);
  for (; i + kAtOnce <= blocks; i += kAtOnce) FillEight(name_, keys, first + i, out + 2 * i);
#endif
  for (; i < blocks; ++i) {
    const std::array<double, 2> values = Block(first + i);
    out[2 * i] = values[0];
    out[2 * i + 1] = values[1];
  }
}

void Uniforms::Fill(absl::Span<double> out) {
  double* to = out.data();
  double* const end = to + out.size();
  if (to < end && next_ % 2 == 1) *to++ = Block(next_ / 2)[1];
  const uint64_t block = (next_ + 1) / 2;
  const auto blocks = static_cast<uint64_t>(end - to) / 2;
  FillBlocks(block, blocks, to);
  to += 2 * blocks;
  if (to < end) *to = Block(block + blocks)[0];
  next_ += out.size();
}

}  // namespace leeway
