#include "common/rng.h"

#include <Random123/philox.h>

#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/numeric/int128.h"
#include "common/digest.h"

namespace leeway {
namespace {

// The finaliser of splitmix64: a bijection that spreads every bit over all.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Chains the four names of a stream. Each link is a bijection of its name, so
// two streams that differ in a single name never share a value.
uint64_t Chain(uint64_t salt, uint64_t seed, uint64_t round, uint64_t client, Purpose purpose) {
  uint64_t x = Mix(seed + salt);
  x = Mix(x ^ round);
  x = Mix(x + client);
  return Mix(x ^ static_cast<uint64_t>(purpose));
}

uint32_t Low(uint64_t x) { return static_cast<uint32_t>(x); }
uint32_t High(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  const r123::Philox4x32::ctr_type block =
      r123::Philox4x32()({{counter[0], counter[1], counter[2], counter[3]}}, {{key[0], key[1]}});
  return {block[0], block[1], block[2], block[3]};
}

uint64_t ClientKey(absl::string_view client_id) { return Xxh3(client_id); }

Rng::Rng(uint64_t seed, uint64_t round, uint64_t client_key, Purpose purpose) {
  // Two chains of different salt give 128 bits of name: the key and the upper
  // half of the counter. The lower half counts blocks, 2^64 per stream.
  const uint64_t key = Chain(0x9e3779b97f4a7c15u, seed, round, client_key, purpose);
  const uint64_t upper = Chain(0xd1b54a32d192ed03u, seed, round, client_key, purpose);
  key_ = {Low(key), High(key)};
  counter_ = {0, 0, Low(upper), High(upper)};
}

uint64_t Rng::Next64() {
  if (used_ == 4) {
    block_ = Philox4x32(counter_, key_);
    if (++counter_[0] == 0) ++counter_[1];
    used_ = 0;
  }
  const size_t word = static_cast<size_t>(used_);
  used_ += 2;
  return block_[word] | (uint64_t{block_[word + 1]} << 32);
}

double Rng::Uniform() { return static_cast<double>(Next64() >> 11) * 0x1p-53; }

uint64_t Rng::Below(uint64_t bound) {
  // Lemire, "Fast random integer generation in an interval", 2019: the high
  // half of a product is the number, the low half tells which to reject.
  absl::uint128 product = absl::uint128(Next64()) * bound;
  if (absl::Uint128Low64(product) < bound) {
    const uint64_t threshold = (uint64_t{0} - bound) % bound;
    while (absl::Uint128Low64(product) < threshold) {
      product = absl::uint128(Next64()) * bound;
    }
  }
  return absl::Uint128High64(product);
}

double Rng::Normal() {
  // Box-Muller. Here and in Gamma bits rest on libm's log, cos and pow: another
  // libm may differ in the last bit. The second value of the pair is not kept:
  // what comes next is then a plain function of how much was drawn.
  constexpr double kTwoPi = 6.283185307179586476925286766559;
  const double radius = std::sqrt(-2.0 * std::log(1.0 - Uniform()));
  return radius * std::cos(kTwoPi * Uniform());
}

double Rng::Gamma(double shape) {
  // Marsaglia and Tsang, "A simple method for generating gamma variables", 2000.
  if (shape < 1) {
    const double boosted = Gamma(shape + 1);
    return boosted * std::pow(1.0 - Uniform(), 1.0 / shape);
  }
  const double d = shape - 1.0 / 3.0;
  const double c = 1.0 / std::sqrt(9.0 * d);
  while (true) {
    const double x = Normal();
    const double root = 1.0 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    const double u = 1.0 - Uniform();
    if (std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

void Rng::Shuffle(std::vector<uint32_t>& items) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[Below(i)]);
}

}  // namespace leeway
