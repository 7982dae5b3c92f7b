#include "common/tally.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "common/huge_pages.h"
#include "common/reason.h"
#include "common/status.h"

namespace leeway {
namespace {

constexpr size_t kLimbs = TallyShape::kLimbs;
using Limbs = std::array<int64_t, kLimbs>;

// What rounding can add to a sum of numbers, relatively.
constexpr double kRoundingSlack = 1e-9;

// The unit of limb k: 2^(32k - 128).
double LimbUnit(size_t k) { return std::ldexp(1.0, 32 * static_cast<int>(k) - 128); }

// Can |v*x| be taken apart? So wide because squares are summed, too: of losses from
// 10^-19 to 10^19.
bool FitsLimbs(double value) { return std::abs(value) < 0x1p126; }

// Adds v*x as limbs of 32 bits: value = sum limb_k * 2^(32k - 128). Exact down to 2^-128;
// what is finer is cut off. A double has 53 bits, so three limbs hold it.
void AddLimbs(double value, int64_t* limbs) {
  const auto whole = std::bit_cast<uint64_t>(value);
  const int exponent = static_cast<int>(whole >> 52 & 0x7ff);
  uint64_t bits = whole & ((uint64_t{1} << 52) - 1);
  if (exponent > 0) bits |= uint64_t{1} << 52;
  int place = std::max(exponent, 1) - 1075 + 128;  // of the lowest bit, counted from 2^-128
  if (place < 0) {
    bits = place > -64 ? bits >> -place : 0;
    place = 0;
  }
  const int64_t sign = std::signbit(value) ? -1 : 1;
  const int shift = place % 32;
  const uint64_t low = bits << shift;
  const uint64_t high = shift == 0 ? 0 : bits >> (64 - shift);
  int64_t* const first = limbs + place / 32;
  first[0] += sign * static_cast<int64_t>(low & 0xffffffff);
  first[1] += sign * static_cast<int64_t>(low >> 32);
  if (high != 0) first[2] += sign * static_cast<int64_t>(high);
}

// Carries limbs into [0, 2^32), the sign into the top one; true if it is negative.
bool Carry(Limbs& limbs) {
  for (size_t k = 0; k + 1 < kLimbs; ++k) {
    const int64_t carry = limbs[k] >> 32;
    limbs[k] -= carry * (int64_t{1} << 32);
    limbs[k + 1] += carry;
  }
  return limbs[kLimbs - 1] < 0;
}

double FromLimbs(const int64_t* in) {
  Limbs limbs;
  std::copy(in, in + kLimbs, limbs.begin());
  const bool negative = Carry(limbs);
  if (negative) {  // so that all limbs have one sign and nothing cancels
    for (size_t k = 0; k < kLimbs; ++k) limbs[k] = -in[k];
    Carry(limbs);
  }
  double value = 0;
  for (size_t k = 0; k < kLimbs; ++k) {
    value += static_cast<double>(limbs[k]) * LimbUnit(k);
  }
  return negative ? -value : value;
}

// A number around it has units of 1, so that adding it rounds to an integer, half to even,
// and leaves that in the low bits. Unlike a conversion to int64 this vectorises on AVX2.
constexpr double kMagic = 0x1.8p52;
constexpr auto kMagicBits = std::bit_cast<uint64_t>(kMagic);

// round(y) for |y| < 2^50.
inline uint64_t RoundSmall(double y) { return std::bit_cast<uint64_t>(y + kMagic) - kMagicBits; }

// round(2^32 y) for |y| < 2^30: the high part is a multiple of 2^32, so the low part is exact
// and rounds as the whole would.
inline uint64_t RoundAny(double y) {
  const double high = y + kMagic;
  const double low = (y - (high - kMagic)) * 0x1p32 + kMagic;
  return (std::bit_cast<uint64_t>(high) << 32) + std::bit_cast<uint64_t>(low) -
         ((kMagicBits << 32) + kMagicBits);
}

// Adds round(scale * x), or takes it away again; returns how many values were beyond `limit`
// (or NaN). The loop has no branch so that it vectorises. With kSmall, scale * limit must be
// below 2^50.
template <bool kSmall, bool kNegate, typename T>
uint32_t FoldSome(const T* x, size_t n, double scale, T limit, int64_t* sum) {
  const double factor = kSmall ? scale : scale * 0x1p-32;
  uint32_t beyond = 0;
  for (size_t i = 0; i < n; ++i) {
    beyond += !(std::abs(x[i]) <= limit);
    const double y = static_cast<double>(x[i]) * factor;
    const uint64_t term = kSmall ? RoundSmall(y) : RoundAny(y);
    const auto before = static_cast<uint64_t>(sum[i]);
    sum[i] = static_cast<int64_t>(kNegate ? before - term : before + term);
  }
  return beyond;
}

// Most values are far below the limit: they are taken for small until one is not, with which
// some are taken back.
template <bool kNegate, typename T>
uint64_t FoldPlainly(const T* x, size_t n, double scale, T limit, int64_t* sum) {
  constexpr size_t kSome = 2048;
  const T small = static_cast<T>(std::min(0x1p49 / scale, static_cast<double>(limit)));
  bool all_small = true;
  uint64_t bad = 0;
  for (size_t i = 0; i < n; i += kSome) {
    const size_t some = std::min(kSome, n - i);
    if (all_small) {
      if (FoldSome<true, kNegate>(x + i, some, scale, small, sum + i) == 0) continue;
      FoldSome<true, !kNegate>(x + i, some, scale, small, sum + i);
      all_small = false;
    }
    bad += FoldSome<false, kNegate>(x + i, some, scale, limit, sum + i);
  }
  return bad;
}

template <typename T>
uint64_t FoldPlainly(const T* x, size_t n, double scale, T limit, bool negate, int64_t* sum) {
  return negate ? FoldPlainly<true>(x, n, scale, limit, sum)
                : FoldPlainly<false>(x, n, scale, limit, sum);
}

#ifdef __x86_64__
// The same where the CPU converts to int64 by itself, 8 at a time: memory is then
// the only limit.
__attribute__((target("avx512f,avx512dq"))) inline void FoldEight(__m512d x, __m512d scale,
                                                                  __m512i flip, int64_t* sum) {
  const __m512i term = _mm512_cvt_roundpd_epi64(_mm512_mul_pd(x, scale),
                                                _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512i signed_term = _mm512_sub_epi64(_mm512_xor_si512(term, flip), flip);
  _mm512_storeu_si512(sum, _mm512_add_epi64(_mm512_loadu_si512(sum), signed_term));
}

template <typename T>
__attribute__((target("avx512f,avx512dq"))) uint64_t FoldWidely(const T* x, size_t n, double scale,
                                                                T limit, bool negate,
                                                                int64_t* sum) {
  constexpr size_t kStep = 64 / sizeof(T);
  const __m512d scales = _mm512_set1_pd(scale);
  const __m512i flip = _mm512_set1_epi64(negate ? -1 : 0);
  uint64_t bad = 0;
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    if constexpr (std::is_same_v<T, float>) {
      const __m512 values = _mm512_loadu_ps(x + i);
      bad += static_cast<uint64_t>(std::popcount(static_cast<uint32_t>(
          _mm512_cmp_ps_mask(_mm512_abs_ps(values), _mm512_set1_ps(limit), _CMP_NLE_UQ))));
      FoldEight(_mm512_cvtps_pd(_mm512_castps512_ps256(values)), scales, flip, sum + i);
      FoldEight(_mm512_cvtps_pd(_mm512_extractf32x8_ps(values, 1)), scales, flip, sum + i + 8);
    } else {
      const __m512d values = _mm512_loadu_pd(x + i);
      bad += static_cast<uint64_t>(std::popcount(static_cast<uint32_t>(
          _mm512_cmp_pd_mask(_mm512_abs_pd(values), _mm512_set1_pd(limit), _CMP_NLE_UQ))));
      FoldEight(values, scales, flip, sum + i);
    }
  }
  return bad + FoldPlainly(x + i, n - i, scale, limit, negate, sum + i);
}
#endif

template <typename T>
uint64_t FoldBlock(const T* x, size_t n, double scale, T limit, bool negate, int64_t* sum) {
#ifdef __x86_64__
  static const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
  if (wide) return FoldWidely(x, n, scale, limit, negate, sum);
#endif
  return FoldPlainly(x, n, scale, limit, negate, sum);
}

template <typename T>
absl::Status DescribeBadValue(const T* x, size_t n, T limit, const std::string& name) {
  for (size_t i = 0; i < n; ++i) {
    if (std::abs(x[i]) <= limit) continue;
    const std::string where = absl::StrCat(name, ", coordinate ", i);
    if (std::isnan(x[i])) {
      return WithReason(absl::InvalidArgumentError(absl::StrCat(
                            where, " is NaN; lower the step size or check the client's data")),
                        "nan");
    }
    if (std::isinf(x[i])) {
      return WithReason(absl::InvalidArgumentError(absl::StrCat(
                            where, " is infinite; lower the step size or check the client's data")),
                        "infinite");
    }
    return WithReason(
        absl::OutOfRangeError(absl::StrCat(where, " is ", x[i], ", beyond the limit ", limit,
                                           "; lower the step size or raise max_update")),
        "beyond_max_update");
  }
  return absl::InternalError("no bad value found");
}

absl::Status OutsideRange(const NumberSum& sum, double value) {
  if (!std::isfinite(value)) {
    return WithReason(absl::InvalidArgumentError(absl::StrCat(
                          sum.name, " is ", value,
                          ", not a finite number; the step size is too large for this client: "
                          "lower it")),
                      "not_finite");
  }
  return WithReason(
      absl::InvalidArgumentError(absl::StrCat(sum.name, " is ", value, "; expected ", sum.smallest,
                                              " to ", sum.largest, " from each client")),
      "number_range");
}

// Does a report have what the shape asks for, and are its numbers in their ranges?
absl::Status CheckReport(const TallyShape& shape, size_t group, uint64_t weight,
                         absl::Span<const double> numbers, size_t vector_values) {
  if (group >= shape.groups) {
    return absl::InvalidArgumentError(
        absl::StrCat("group ", group, " does not exist; there are ", shape.groups));
  }
  if (weight < 1 || weight > (uint64_t{1} << 40)) {
    return absl::InvalidArgumentError(absl::StrCat("weight ", weight, " is not in 1 .. 2^40"));
  }
  if (numbers.size() != shape.numbers.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "report has ", numbers.size(), " numbers, the task asks for ", shape.numbers.size()));
  }
  if (vector_values != shape.vectors.size() * shape.dimension) {
    return absl::InvalidArgumentError(absl::StrCat("report has ", vector_values,
                                                   " vector values, the task asks for ",
                                                   shape.vectors.size(), " x ", shape.dimension));
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    const NumberSum& sum = shape.numbers[i];
    if (!(sum.smallest <= numbers[i] && numbers[i] <= sum.largest)) {
      return OutsideRange(sum, numbers[i]);
    }
    if (!FitsLimbs(numbers[i] * static_cast<double>(weight))) {
      return absl::InvalidArgumentError(
          absl::StrCat(sum.name, " is ", numbers[i],
                       ", times its weight not a finite number below 2^126; the step size is too "
                       "large for this client: lower it"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

int FractionBits(double largest, uint64_t total_weight) {
  const double bound = largest * static_cast<double>(std::max<uint64_t>(total_weight, 1));
  // 2^exponent > bound, so bound * 2^(62 - exponent) < 2^62.
  return 62 - (std::ilogb(bound) + 1);
}

double NumberIn(absl::Span<const int64_t> flat, const TallyShape& shape, size_t group,
                size_t index) {
  return FromLimbs(flat.data() + group * shape.group_size() + 2 + kLimbs * index);
}

void Tally::Reset(const TallyShape& shape, Workers* workers) {
  shape_ = shape;
  if (shape.flat_size() > flat_.capacity()) flat_.clear();  // nothing to copy
  flat_.reserve(shape.flat_size());
  PreferHugePages(flat_.data(), flat_.capacity() * sizeof(int64_t));
  flat_.resize(shape.flat_size());
  ForBlocks(flat_.size(), workers,
            [&](size_t begin, size_t n) { std::fill_n(flat_.data() + begin, n, 0); });
}

template <typename T>
absl::Status Tally::Add(size_t group, uint64_t weight, absl::Span<const double> numbers,
                        absl::Span<const T> vectors, Workers* workers) {
  LEEWAY_RETURN_IF_ERROR(CheckReport(shape_, group, weight, numbers, vectors.size()));
  int64_t* out = group_begin(group);
  // Adds every vector, or takes it away again; returns the first that has a bad value.
  const auto fold = [&](bool negate) {
    size_t first_bad = shape_.vectors.size();
    for (size_t k = 0; k < shape_.vectors.size(); ++k) {
      const double scale = std::ldexp(static_cast<double>(weight), shape_.vectors[k].fraction_bits);
      const T limit = static_cast<T>(shape_.vectors[k].largest);
      const T* values = vectors.data() + k * shape_.dimension;
      int64_t* sums = out + shape_.vectors_begin() + k * shape_.dimension;
      std::atomic<uint64_t> bad{0};
      ForBlocks(shape_.dimension, workers, [&](size_t begin, size_t n) {
        bad += FoldBlock(values + begin, n, scale, limit, negate, sums + begin);
      });
      if (bad > 0) first_bad = std::min(first_bad, k);
    }
    return first_bad;
  };
  if (const size_t bad = fold(false); bad < shape_.vectors.size()) {
    fold(true);  // integer sums undo exactly: take back what was added
    return DescribeBadValue(vectors.data() + bad * shape_.dimension, shape_.dimension,
                            static_cast<T>(shape_.vectors[bad].largest), shape_.vectors[bad].name);
  }
  out[0] += 1;
  out[1] += static_cast<int64_t>(weight);
  for (size_t i = 0; i < numbers.size(); ++i) {
    AddLimbs(numbers[i] * static_cast<double>(weight), out + 2 + kLimbs * i);
  }
  return absl::OkStatus();
}

template absl::Status Tally::Add<float>(size_t, uint64_t, absl::Span<const double>,
                                        absl::Span<const float>, Workers*);
template absl::Status Tally::Add<double>(size_t, uint64_t, absl::Span<const double>,
                                         absl::Span<const double>, Workers*);

absl::Status Tally::Merge(const Tally& other) {
  if (!(other.shape_ == shape_)) {
    return absl::InvalidArgumentError("tallies of different shapes cannot be merged");
  }
  for (size_t i = 0; i < flat_.size(); ++i) flat_[i] += other.flat_[i];
  return absl::OkStatus();
}

absl::Status Tally::CheckSums(absl::Span<const int64_t> in, size_t group) const {
  const auto weight = static_cast<double>(in[1]);
  // Of the limbs' sums first, so that they cannot overflow; then of what they say.
  const auto limb_limit = static_cast<int64_t>(static_cast<uint64_t>(in[0]) << 32);
  for (size_t i = 0; i < shape_.numbers.size(); ++i) {
    const NumberSum& sum = shape_.numbers[i];
    const auto limbs = in.subspan(2 + kLimbs * i, kLimbs);
    for (const int64_t limb : limbs) {
      if (limb > limb_limit || limb < -limb_limit) {
        return absl::OutOfRangeError(absl::StrCat(sum.name, " has a limb out of range"));
      }
    }
    const double value = FromLimbs(limbs.data());
    const double slack = kRoundingSlack * std::abs(value);
    if (value + slack < sum.smallest * weight || value - slack > sum.largest * weight) {
      return absl::OutOfRangeError(absl::StrCat(
          sum.name, " of group ", group, " is ", value, " in all; expected ", sum.smallest, " to ",
          sum.largest, " from each of its clients, whose weight is ", weight));
    }
  }
  for (size_t k = 0; k < shape_.vectors.size(); ++k) {
    const VectorSum& sum = shape_.vectors[k];
    // Each client's term is at most round(v*R*2^f).
    const double limit =
        std::ldexp(sum.largest * weight, sum.fraction_bits) + static_cast<double>(in[0]);
    const auto bound = static_cast<int64_t>(limit);
    const auto values = in.subspan(shape_.vectors_begin() + k * shape_.dimension, shape_.dimension);
    uint64_t bad = 0;
    for (const int64_t value : values) bad += (value > bound) | (value < -bound);
    if (bad > 0) {
      return absl::OutOfRangeError(
          absl::StrCat(bad, " coordinates of ", sum.name, " are beyond the limit ", sum.largest,
                       " times the weight; lower the step size or raise max_update"));
    }
  }
  return absl::OkStatus();
}

absl::Status Tally::MergeFlat(absl::Span<const int64_t> flat, uint64_t clients, uint64_t weight) {
  if (flat.size() != flat_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tally has ", flat.size(), " integers, expected ", flat_.size()));
  }
  uint64_t sent_clients = 0;
  uint64_t sent_weight = 0;
  for (size_t g = 0; g < shape_.groups; ++g) {
    const auto in = flat.subspan(g * shape_.group_size(), shape_.group_size());
    if (in[0] < 0 || static_cast<uint64_t>(in[0]) > clients || in[1] < in[0] ||
        static_cast<uint64_t>(in[1]) > weight) {
      return absl::InvalidArgumentError(
          absl::StrCat("group ", g, " claims ", in[0], " clients of weight ", in[1]));
    }
    sent_clients += static_cast<uint64_t>(in[0]);
    sent_weight += static_cast<uint64_t>(in[1]);
    LEEWAY_RETURN_IF_ERROR(CheckSums(in, g));
  }
  if (sent_clients != clients || sent_weight != weight) {
    return absl::InvalidArgumentError(
        absl::StrCat("tally holds ", sent_clients, " clients of weight ", sent_weight,
                     ", its header names ", clients, " clients of weight ", weight));
  }
  for (size_t i = 0; i < flat_.size(); ++i) flat_[i] += flat[i];
  return absl::OkStatus();
}

uint64_t Tally::clients(size_t group) const { return static_cast<uint64_t>(group_begin(group)[0]); }
uint64_t Tally::weight(size_t group) const { return static_cast<uint64_t>(group_begin(group)[1]); }

uint64_t Tally::clients() const {
  uint64_t total = 0;
  for (size_t g = 0; g < shape_.groups; ++g) total += clients(g);
  return total;
}

uint64_t Tally::weight() const {
  uint64_t total = 0;
  for (size_t g = 0; g < shape_.groups; ++g) total += weight(g);
  return total;
}

double Tally::number(size_t group, size_t index) const {
  return NumberIn(flat_, shape_, group, index);
}

double Tally::number(size_t index) const {
  Limbs total{};
  for (size_t g = 0; g < shape_.groups; ++g) {
    for (size_t k = 0; k < kLimbs; ++k) total[k] += group_begin(g)[2 + kLimbs * index + k];
  }
  return FromLimbs(total.data());
}

Vector<double> Tally::vector(size_t group, size_t index) const {
  const int64_t* in = group_begin(group) + shape_.vectors_begin() + index * shape_.dimension;
  const double unit = std::ldexp(1.0, -shape_.vectors[index].fraction_bits);
  Vector<double> out(static_cast<Eigen::Index>(shape_.dimension));
  for (size_t i = 0; i < shape_.dimension; ++i) {
    out[static_cast<Eigen::Index>(i)] = static_cast<double>(in[i]) * unit;
  }
  return out;
}

Vector<double> Tally::vector(size_t index) const {
  Vector<double> out(static_cast<Eigen::Index>(shape_.dimension));
  Read(index, 0, absl::MakeSpan(out.data(), shape_.dimension));
  return out;
}

void Tally::Read(size_t index, size_t begin, absl::Span<double> out) const {
  const double unit = std::ldexp(1.0, -shape_.vectors[index].fraction_bits);
  const size_t first = shape_.vectors_begin() + index * shape_.dimension + begin;
  if (shape_.groups == 1) {
    const int64_t* in = flat_.data() + first;
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<double>(in[i]) * unit;
    return;
  }
  // Integers first: the sum over groups has the bits of an ungrouped tally.
  for (size_t i = 0; i < out.size(); ++i) {
    int64_t total = 0;
    for (size_t g = 0; g < shape_.groups; ++g) total += group_begin(g)[first + i];
    out[i] = static_cast<double>(total) * unit;
  }
}

}  // namespace leeway
