#include "common/tally.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "common/rng.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

TallyShape Shape(size_t dimension, size_t vectors, size_t numbers, uint64_t weight,
                 size_t groups = 1) {
  TallyShape shape;
  shape.dimension = dimension;
  for (size_t k = 0; k < vectors; ++k) {
    shape.vectors.push_back({"vector_" + std::to_string(k), FractionBits(256, weight), 256});
  }
  for (size_t k = 0; k < numbers; ++k) shape.numbers.push_back({"number_" + std::to_string(k)});
  shape.groups = groups;
  return shape;
}

struct Report {
  size_t group;
  uint64_t weight;
  std::vector<double> numbers;
  std::vector<double> vectors;
};

Report RandomReport(const TallyShape& shape, Rng& rng) {
  Report r;
  r.group = rng.Below(shape.groups);
  r.weight = 1 + rng.Below(50);
  for (size_t i = 0; i < shape.numbers.size(); ++i) {
    r.numbers.push_back(rng.Normal() * std::ldexp(1.0, static_cast<int>(rng.Below(60)) - 30));
  }
  for (size_t i = 0; i < shape.vectors.size() * shape.dimension; ++i) {
    r.vectors.push_back((2 * rng.Uniform() - 1) * 256);
  }
  return r;
}

absl::Status AddTo(Tally& tally, const Report& r) {
  return tally.Add<double>(r.group, r.weight, r.numbers, r.vectors);
}

std::vector<int64_t> Bits(const Tally& tally) {
  return std::vector<int64_t>(tally.flat().begin(), tally.flat().end());
}

TEST(TallyTest, FractionBitsAreTheLargestThatCannotOverflow) {
  for (double r : {1.0, 256.0, 1e-3, 1000.0, 255.9}) {
    for (uint64_t w : {uint64_t{1}, uint64_t{7}, uint64_t{100}, uint64_t{1} << 30}) {
      const int f = FractionBits(r, w);
      EXPECT_LT(std::ldexp(r * static_cast<double>(w), f), 0x1p62);
      EXPECT_GE(std::ldexp(r * static_cast<double>(w), f + 1), 0x1p62);
    }
  }
}

TEST(TallyTest, AddRoundsEachTermLikeRint) {
  const TallyShape shape = Shape(1000, 1, 0, 3);
  const int bits = shape.vectors[0].fraction_bits;
  Rng rng(1, 0, 0, Purpose::kTest);
  std::vector<double> values(1000);
  for (double& v : values) {
    v = (2 * rng.Uniform() - 1) * std::ldexp(256.0, -static_cast<int>(rng.Below(60)));
  }
  values[0] = 256;
  values[1] = -256;
  values[2] = std::ldexp(0.5, -bits);  // a tie: to even
  values[3] = std::ldexp(1.5, -bits);
  Tally tally(shape);
  ASSERT_TRUE(tally.Add<double>(0, 3, {}, values).ok());
  for (size_t i = 0; i < values.size(); ++i) {
    const double exact = std::ldexp(3.0, bits) * values[i];
    EXPECT_EQ(tally.flat()[2 + i], static_cast<int64_t>(std::nearbyint(exact))) << values[i];
  }
}

TEST(TallyTest, FloatAndDoubleGiveTheSameIntegers) {
  const TallyShape shape = Shape(64, 2, 0, 5);
  Rng rng(2, 0, 0, Purpose::kTest);
  std::vector<float> single(128);
  for (float& v : single) v = static_cast<float>(rng.Normal());
  const std::vector<double> wide(single.begin(), single.end());
  Tally a(shape), b(shape);
  ASSERT_TRUE(a.Add<float>(0, 5, {}, single).ok());
  ASSERT_TRUE(b.Add<double>(0, 5, {}, wide).ok());
  EXPECT_EQ(Bits(a), Bits(b));
}

TEST(TallyTest, NumbersKeepTheSquaresOfTinyAndHugeLosses) {
  const TallyShape shape = Shape(0, 0, 1, 1);
  for (double value : {1.0, -1.0, 0x1p-64, -0x1p-128, 4e-10 * 4e-10, 1e18, -3.25e-7, 123456.789,
                       8e5 * 8e5 * 8e5, 0x1p125, -0x1p125}) {
    Tally tally(shape);
    ASSERT_TRUE(tally.Add<double>(0, 1, {&value, 1}, {}).ok());
    EXPECT_NEAR(tally.number(0), value, 0x1p-128 + std::abs(value) * 1e-15) << value;
  }
  const double beyond = 0x1p126;
  EXPECT_FALSE(Tally(shape).Add<double>(0, 1, {&beyond, 1}, {}).ok());
}

TEST(TallyTest, NumbersAreExactDownToTheirLastLimb) {
  const TallyShape shape = Shape(0, 0, 1, 1);
  Rng rng(8, 0, 0, Purpose::kTest);
  for (int exponent = -1074; exponent < 126; ++exponent) {
    const double sign = rng.Below(2) == 0 ? 1 : -1;
    const double value = sign * std::ldexp(0.5 + 0.5 * rng.Uniform(), exponent);
    // Finer than 2^-128 is cut off.
    const double expected =
        exponent < 0 ? std::ldexp(std::trunc(std::ldexp(value, 128)), -128) : value;
    Tally tally(shape);
    ASSERT_TRUE(tally.Add<double>(0, 1, {&value, 1}, {}).ok());
    EXPECT_EQ(tally.number(0), expected) << value;
    for (size_t k = 2; k < tally.flat().size(); ++k) {
      EXPECT_LT(std::abs(tally.flat()[k]), int64_t{1} << 32) << value;
    }
  }
}

TEST(TallyTest, NumbersCancelExactly) {
  const TallyShape shape = Shape(0, 0, 1, 3);
  Tally tally(shape);
  for (double value : {1e15, 1e-5, -1e15}) {
    ASSERT_TRUE(tally.Add<double>(0, 1, {&value, 1}, {}).ok());
  }
  EXPECT_NEAR(tally.number(0), 1e-5, 1e-20);
}

TEST(TallyTest, MergeIsOrderFree) {
  const TallyShape shape = Shape(17, 3, 4, 50 * 40, 3);
  Rng rng(3, 0, 0, Purpose::kTest);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<Report> reports;
    for (int i = 0; i < 40; ++i) reports.push_back(RandomReport(shape, rng));
    Tally flat(shape);
    for (const Report& r : reports) ASSERT_TRUE(AddTo(flat, r).ok());

    // The same reports, permuted, through a random tree of merges.
    std::vector<uint32_t> order(reports.size());
    std::iota(order.begin(), order.end(), 0u);
    rng.Shuffle(order);
    std::vector<Tally> parts;
    for (const uint32_t i : order) {
      if (parts.empty() || rng.Below(3) == 0) parts.emplace_back(shape);
      ASSERT_TRUE(AddTo(parts[rng.Below(parts.size())], reports[i]).ok());
    }
    while (parts.size() > 1) {
      const size_t from = rng.Below(parts.size());
      Tally taken = parts[from];
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(from));
      ASSERT_TRUE(parts[rng.Below(parts.size())].Merge(taken).ok());
    }
    ASSERT_EQ(Bits(parts[0]), Bits(flat));
  }
}

TEST(TallyTest, GroupsAddUpToTheWhole) {
  const TallyShape grouped = Shape(9, 2, 1, 400, 4);
  TallyShape whole = grouped;
  whole.groups = 1;
  Rng rng(4, 0, 0, Purpose::kTest);
  Tally a(grouped), b(whole);
  for (int i = 0; i < 8; ++i) {
    Report r = RandomReport(grouped, rng);
    ASSERT_TRUE(AddTo(a, r).ok());
    r.group = 0;
    ASSERT_TRUE(AddTo(b, r).ok());
  }
  EXPECT_EQ(a.clients(), b.clients());
  EXPECT_EQ(a.weight(), b.weight());
  EXPECT_EQ(a.number(0), b.number(0));
  EXPECT_EQ(a.vector(1), b.vector(1));
}

TEST(TallyTest, RefusalsNameThePlaceAndChangeNothing) {
  const TallyShape shape = Shape(5000, 2, 1, 10);
  Rng rng(5, 0, 0, Purpose::kTest);
  Tally tally(shape);
  ASSERT_TRUE(AddTo(tally, RandomReport(shape, rng)).ok());
  const std::vector<int64_t> before = Bits(tally);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {nan, infinity, -infinity, 256.0001, -1e300}) {
    for (const size_t place : {size_t{0}, size_t{4095}, size_t{4096}, size_t{9999}}) {
      Report r = RandomReport(shape, rng);
      r.vectors[place] = bad;
      const absl::Status status = AddTo(tally, r);
      ASSERT_FALSE(status.ok());
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("vector_" + std::to_string(place / 5000) + ", coordinate " +
                            std::to_string(place % 5000)));
      ASSERT_EQ(Bits(tally), before);
    }
  }
  Report r = RandomReport(shape, rng);
  r.numbers[0] = nan;
  EXPECT_THAT(std::string(AddTo(tally, r).message()), HasSubstr("number_0 is nan"));
  r = RandomReport(shape, rng);
  r.weight = 0;
  EXPECT_FALSE(AddTo(tally, r).ok());
  r = RandomReport(shape, rng);
  r.vectors.pop_back();
  EXPECT_FALSE(AddTo(tally, r).ok());
  r = RandomReport(shape, rng);
  r.group = 1;
  EXPECT_FALSE(AddTo(tally, r).ok());
  EXPECT_EQ(Bits(tally), before);
}

TEST(TallyTest, MergeFlatChecksWhatASumCanBe) {
  const TallyShape shape = Shape(3, 1, 1, 100);
  Rng rng(6, 0, 0, Purpose::kTest);
  Tally part(shape);
  Report a = RandomReport(shape, rng), b = RandomReport(shape, rng);
  ASSERT_TRUE(AddTo(part, a).ok());
  ASSERT_TRUE(AddTo(part, b).ok());
  const uint64_t weight = a.weight + b.weight;
  Tally total(shape);
  ASSERT_TRUE(total.MergeFlat(part.flat(), 2, weight).ok());
  EXPECT_EQ(Bits(total), Bits(part));

  const std::vector<int64_t> before = Bits(total);
  EXPECT_FALSE(total.MergeFlat(part.flat(), 3, weight).ok());      // another number of clients
  EXPECT_FALSE(total.MergeFlat(part.flat(), 2, weight + 1).ok());  // another weight
  std::vector<int64_t> forged = Bits(part);
  forged.back() = std::numeric_limits<int64_t>::max();  // beyond what 2 clients can send
  EXPECT_FALSE(total.MergeFlat(forged, 2, weight).ok());
  forged = Bits(part);
  forged[2] = std::numeric_limits<int64_t>::min();
  EXPECT_FALSE(total.MergeFlat(forged, 2, weight).ok());
  forged = Bits(part);
  forged[0] = -2;
  EXPECT_FALSE(total.MergeFlat(forged, 2, weight).ok());
  forged.pop_back();
  EXPECT_FALSE(total.MergeFlat(forged, 2, weight).ok());
  EXPECT_EQ(Bits(total), before);
}

// Every vector has a unit and a limit of its own.
TEST(TallyTest, VectorsHaveTheirOwnUnitsAndLimits) {
  TallyShape shape;
  shape.dimension = 2;
  shape.vectors = {{"coarse", 1, 1000}, {"fine", 40, 1}};
  Tally tally(shape);
  ASSERT_TRUE(tally.Add<double>(0, 3, {}, std::vector<double>{700.2, -0.4, 0.7, 0x1p-40}).ok());
  EXPECT_EQ(tally.vector(0), Vector<double>({{2100.5, -1}}));  // of 2100.6 and -1.2
  EXPECT_EQ(tally.flat()[4], std::llrint(std::ldexp(2.1, 40)));
  EXPECT_EQ(tally.vector(1)[1], 3 * 0x1p-40);
  EXPECT_EQ(tally.vector(0, 1), tally.vector(1));
  const std::vector<int64_t> before = Bits(tally);
  // 2 is fine in the first, beyond the limit in the second; what was added is taken back.
  const absl::Status status = tally.Add<double>(0, 1, {}, std::vector<double>{2, 2, 0, 2});
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("fine, coordinate 1 is 2, beyond the limit"));
  EXPECT_EQ(Bits(tally), before);
  // The same in a sum.
  std::vector<int64_t> forged = before;
  forged[2] = int64_t{3 * 1000} << 1;  // as large as it can be
  EXPECT_TRUE(Tally(shape).MergeFlat(forged, 1, 3).ok());
  forged[2] += 2;
  const absl::Status beyond = Tally(shape).MergeFlat(forged, 1, 3);
  EXPECT_THAT(std::string(beyond.message()), HasSubstr("1 coordinates of coarse"));
}

TEST(TallyTest, NumbersStayWithinTheirRange) {
  TallyShape shape;
  shape.numbers = {{"count", 0, 1}, {"loss"}};
  const auto add = [](Tally& tally, uint64_t weight, double count, double loss) {
    return tally.Add<double>(0, weight, std::vector<double>{count, loss}, {});
  };
  Tally tally(shape);
  ASSERT_TRUE(add(tally, 5, 1, -7).ok());
  ASSERT_TRUE(add(tally, 2, 0, 3).ok());
  const std::vector<int64_t> before = Bits(tally);
  for (const double bad : {-100.0, -1e-9, 1.0000001, 2.0, 1e300, std::nan("")}) {
    const absl::Status status = add(tally, 1, bad, 0);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(status.message()), HasSubstr("count is ")) << bad;
  }
  EXPECT_EQ(Bits(tally), before);
  EXPECT_EQ(tally.number(0), 5);
  EXPECT_EQ(tally.number(1), -29);

  // Of a sum no more can be said than what clients of that weight can add up to.
  EXPECT_TRUE(Tally(shape).MergeFlat(before, 2, 7).ok());
  TallyShape free = shape;
  free.numbers[0] = {"count"};
  for (const double bad : {-100.0, 2.0}) {
    Tally forged(free);
    ASSERT_TRUE(add(forged, 5, bad, 0).ok());
    const absl::Status status = Tally(shape).MergeFlat(forged.flat(), 1, 5);
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
    EXPECT_THAT(std::string(status.message()), HasSubstr("count of group 0 is "));
  }
}

TEST(TallyTest, LongVectorsAreSharedAmongWorkersWithTheSameBits) {
  TallyShape shape;
  shape.dimension = 300'001;             // several blocks and a rest
  shape.vectors = {{"vector", 4, 256}};  // many values are halfway between two integers
  Rng rng(7, 0, 0, Purpose::kTest);
  std::vector<float> values(shape.dimension);
  for (float& x : values) x = static_cast<float>(std::ldexp(rng.Below(1 << 14), -6) - 128);
  Workers workers(3);
  Tally shared(shape);
  Tally alone(shape);
  ASSERT_TRUE(shared.Add<float>(0, 3, {}, values, &workers).ok());
  ASSERT_TRUE(alone.Add<float>(0, 3, {}, values).ok());
  EXPECT_EQ(Bits(shared), Bits(alone));
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(shared.flat()[2 + i], std::llrint(std::ldexp(3.0 * double{values[i]}, 4))) << i;
  }
  values[values.size() - 7] = std::nanf("");
  EXPECT_FALSE(shared.Add<float>(0, 3, {}, values, &workers).ok());
  values[values.size() - 7] = -1e30f;
  EXPECT_FALSE(shared.Add<float>(0, 3, {}, values, &workers).ok());
  EXPECT_EQ(Bits(shared), Bits(alone));
}

}  // namespace
}  // namespace leeway
