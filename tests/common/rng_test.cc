#include "common/rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "common/uniforms.h"

namespace leeway {
namespace {

using Block = std::array<uint32_t, 4>;

Rng TestStream(uint64_t seed = 1) { return Rng(seed, 0, 0, Purpose::kTest); }

// kat_vectors of Random123.
TEST(RngTest, MatchesPublishedVectors) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(Philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RngTest, EveryNameOfAStreamMatters) {
  std::set<uint64_t> first;
  first.insert(Rng(0, 0, 0, Purpose::kTest).Next64());
  first.insert(Rng(1, 0, 0, Purpose::kTest).Next64());
  first.insert(Rng(0, 1, 0, Purpose::kTest).Next64());
  first.insert(Rng(0, 0, 1, Purpose::kTest).Next64());
  first.insert(Rng(0, 0, 0, Purpose::kGroups).Next64());
  EXPECT_EQ(first.size(), 5u);
}

TEST(RngTest, NeighbouringStreamsDoNotOverlap) {
  std::set<uint64_t> seen;
  size_t drawn = 0;
  for (uint64_t round = 0; round < 50; ++round) {
    for (uint64_t client = 0; client < 50; ++client) {
      Rng rng(7, round, client, Purpose::kBatchOrder);
      for (int i = 0; i < 8; ++i, ++drawn) seen.insert(rng.Next64());
    }
  }
  EXPECT_EQ(seen.size(), drawn);
}

TEST(RngTest, SameNameGivesTheSameStream) {
  Rng a(3, 5, ClientKey("c"), Purpose::kTest);
  Rng b(3, 5, ClientKey("c"), Purpose::kTest);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a.Next64(), b.Next64());
}

// The numbers are part of the format: stored runs would not resume otherwise.
TEST(RngTest, StreamsAreFrozen) {
  Rng rng(42, 3, ClientKey("client-7"), Purpose::kBatchOrder);
  EXPECT_EQ(ClientKey("client-7"), 0x1f7475ffb7ccdd2cu);
  EXPECT_EQ(rng.Next64(), 0x3fa764fe74623715u);
  EXPECT_EQ(rng.Next64(), 0xa3006827e56510a1u);
  EXPECT_EQ(rng.Next64(), 0xd97e7c404c9300acu);
}

// Long streams, what is drawn from them, and the ends of the range of names.
TEST(RngTest, LongStreamsAreFrozen) {
  const struct {
    uint64_t seed, round, client;
    Purpose purpose;
    uint64_t first, second, third, rest;
  } streams[] = {{0, 0, 0, Purpose::kTest, 0xdc368a21727938c9, 0x1bc72db40fe5ba98,
                  0x92a77e6161bf349f, 0x4f4a9630d7f5188e},
                 {1, 2, 3, Purpose::kBatchOrder, 0x334946352d69328a, 0xeec0e7c29275a39e,
                  0x56360093f67b6e9b, 0x655811eb407310cd},
                 {UINT64_MAX, UINT64_MAX, UINT64_MAX, Purpose::kLanczos, 0x7c5707905d8f31b2,
                  0x694dc43ca3c0d882, 0x0b96ff00c433fdf3, 0x324b1d8ec87c65e6},
                 {7, 12, ClientKey("client_0007"), Purpose::kRounding, 0xe783ccb8a1db31e4,
                  0x9d10ed49496d7d89, 0x4925533ce4b30499, 0xb829b37429daf687}};
  for (const auto& stream : streams) {
    Rng rng(stream.seed, stream.round, stream.client, stream.purpose);
    EXPECT_EQ(rng.Next64(), stream.first);
    EXPECT_EQ(rng.Next64(), stream.second);
    EXPECT_EQ(rng.Next64(), stream.third);
    uint64_t rest = 0;  // depends on every bit and on the order
    for (int i = 0; i < 100000; ++i) rest = rest * 6364136223846793005u + rng.Next64();
    EXPECT_EQ(rest, stream.rest);
  }
}

TEST(RngTest, WhatIsDrawnIsFrozen) {
  Rng below = TestStream(5);
  for (const uint64_t number : {314901986, 30886743, 848881927, 203367761, 15682226, 101544548}) {
    EXPECT_EQ(below.Below(1000000007), number);
  }
  std::vector<uint32_t> items(10);
  std::iota(items.begin(), items.end(), 0u);
  TestStream(5).Shuffle(items);
  EXPECT_EQ(items, (std::vector<uint32_t>{4, 2, 9, 7, 5, 8, 1, 6, 0, 3}));
  Rng uniform = TestStream(5);
  EXPECT_EQ(uniform.Uniform(), 0x1.4275aa6d83144p-2);
  EXPECT_EQ(uniform.Uniform(), 0x1.fa0c63aeb4c8p-6);
}

TEST(RngTest, UniformIsInRangeWithTheRightMoments) {
  Rng rng = TestStream();
  double sum = 0, squares = 0;
  const int n = 200000;
  for (int i = 0; i < n; ++i) {
    const double u = rng.Uniform();
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
    squares += u * u;
  }
  EXPECT_NEAR(sum / n, 0.5, 0.004);
  EXPECT_NEAR(squares / n, 1.0 / 3, 0.004);
}

TEST(UniformsTest, AreThoseOfTheStreamWhateverIsAskedForAtOnce) {
  Rng one_by_one(7, 3, 11, Purpose::kTest);
  Uniforms many(one_by_one);
  for (const size_t size : {1u, 1u, 2u, 7u, 8u, 9u, 0u, 3u, 16u, 33u, 1000u}) {
    std::vector<double> values(size);
    many.Fill(absl::MakeSpan(values));
    for (const double value : values) ASSERT_EQ(value, one_by_one.Uniform()) << size;
    ASSERT_EQ(many.Next(), one_by_one.Uniform()) << size;
  }
}

TEST(RngTest, BelowIsUniform) {
  Rng rng = TestStream();
  std::array<int, 7> counts{};
  const int n = 140000;
  for (int i = 0; i < n; ++i) ++counts.at(rng.Below(7));
  double chi_squared = 0;
  for (int count : counts) chi_squared += std::pow(count - n / 7.0, 2) / (n / 7.0);
  EXPECT_LT(chi_squared, 22.5);  // 6 degrees of freedom, p = 0.001
}

TEST(RngTest, BelowHasNoBiasForHugeBounds) {
  // With bound 3 * 2^62 a plain modulo would give the lowest third half of all.
  Rng rng = TestStream();
  const uint64_t bound = uint64_t{3} << 62;
  int low = 0;
  const int n = 30000;
  for (int i = 0; i < n; ++i) {
    const uint64_t x = rng.Below(bound);
    ASSERT_LT(x, bound);
    low += x < (uint64_t{1} << 62) ? 1 : 0;
  }
  EXPECT_NEAR(low / double{n}, 1.0 / 3, 0.012);
  EXPECT_EQ(rng.Below(1), 0u);
}

TEST(RngTest, NormalHasTheRightMoments) {
  Rng rng = TestStream();
  double sum = 0, squares = 0, fourth = 0;
  const int n = 200000;
  for (int i = 0; i < n; ++i) {
    const double z = rng.Normal();
    ASSERT_TRUE(std::isfinite(z));
    sum += z;
    squares += z * z;
    fourth += z * z * z * z;
  }
  EXPECT_NEAR(sum / n, 0, 0.01);
  EXPECT_NEAR(squares / n, 1, 0.015);
  EXPECT_NEAR(fourth / n, 3, 0.12);
}

TEST(RngTest, GammaHasTheRightMoments) {
  for (double shape : {0.1, 0.5, 1.0, 3.5}) {
    Rng rng = TestStream(9);
    double sum = 0, squares = 0;
    const int n = 200000;
    for (int i = 0; i < n; ++i) {
      const double g = rng.Gamma(shape);
      ASSERT_GE(g, 0);
      sum += g;
      squares += g * g;
    }
    const double mean = sum / n;
    EXPECT_NEAR(mean, shape, 0.02 * std::max(1.0, shape)) << shape;
    EXPECT_NEAR(squares / n - mean * mean, shape, 0.06 * std::max(1.0, shape)) << shape;
  }
}

TEST(RngTest, ShuffleIsAPermutationAndReachesAll) {
  std::set<std::vector<uint32_t>> seen;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    std::vector<uint32_t> items(4);
    std::iota(items.begin(), items.end(), 0u);
    Rng rng = TestStream(seed);
    rng.Shuffle(items);
    seen.insert(items);
    std::sort(items.begin(), items.end());
    ASSERT_EQ(items, (std::vector<uint32_t>{0, 1, 2, 3}));
  }
  EXPECT_EQ(seen.size(), 24u);
}

}  // namespace
}  // namespace leeway
