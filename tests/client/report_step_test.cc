// Each step between the worker and the wire, on reports of its own.
#include "client/report_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/encoding.h"
#include "common/rng.h"
#include "tests/named_report.h"

namespace leeway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr size_t kDimension = 300;  // more than one block of INT8
constexpr uint64_t kWeight = 5;

// Everything that steps may change.
v1::Task Training() {
  v1::Task task;
  for (const char* name : {kDisplacement, kDrift, kGradient}) Ask(name, task);
  for (const char* name : {kLoss, kLossSquared, kDisplacementSquared, kDriftSquared,
                           kWeightedDriftSquared, kGradientSquared}) {
    Ask(name, task);
  }
  SetRange(256, 100, task);
  return task;
}

template <typename T>
NamedReport<T> RandomReport(const TaskSums& sums, uint64_t seed) {
  Rng rng(seed, 0, 0, Purpose::kTest);
  NamedReport<T> report(sums, kWeight);
  for (T& x : report.report().vectors) x = static_cast<T>(rng.Normal());
  report.Set(kLoss, rng.Normal());
  report.Derive();
  return report;
}

template <typename T>
double Norm(const Vector<T>& x) {
  return std::sqrt(x.template cast<double>().squaredNorm());
}

// For models of either precision.
template <typename T>
class ReportStepTest : public ::testing::Test {};
using Precisions = ::testing::Types<float, double>;
TYPED_TEST_SUITE(ReportStepTest, Precisions);

TYPED_TEST(ReportStepTest, ALongDisplacementIsRefusedWithTheRemedy) {
  v1::Task task = Training();
  task.set_max_norm(2);
  const TaskSums sums(task, kDimension);
  NamedReport<TypeParam> report = RandomReport<TypeParam>(sums, 1);
  ASSERT_GT(Norm(report.vector(kDisplacement)), 2);
  const absl::Status status = MakeNormLimit()->Apply({task, sums}, report.report());
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("norm of the displacement is 1"),  // about the square root of 300
                    HasSubstr("beyond the limit 2"), HasSubstr("norm_policy")));
}

TYPED_TEST(ReportStepTest, ClippingScalesTheDisplacementToTheNormAndNothingElse) {
  v1::Task task = Training();
  task.set_max_norm(2);
  task.set_clip(true);
  const TaskSums sums(task, kDimension);
  const NamedReport<TypeParam> before = RandomReport<TypeParam>(sums, 1);
  NamedReport<TypeParam> report = before;
  ASSERT_TRUE(MakeNormLimit()->Apply({task, sums}, report.report()).ok());
  const double precision = std::is_same_v<TypeParam, double> ? 1e-14 : 1e-6;
  EXPECT_NEAR(Norm(report.vector(kDisplacement)), 2, 2 * precision);
  // The direction stays.
  const Vector<double> was = before.vector(kDisplacement).template cast<double>();
  const Vector<double> is = report.vector(kDisplacement).template cast<double>();
  EXPECT_NEAR(was.dot(is), was.norm() * is.norm(), precision * was.norm() * is.norm());
  // What follows from it is of what is sent; all else is untouched.
  EXPECT_NEAR(report.number(kDisplacementSquared), is.squaredNorm(), 1e-14);
  EXPECT_EQ(report.vector(kDrift), before.vector(kDrift));
  EXPECT_EQ(report.vector(kGradient), before.vector(kGradient));
  for (const char* name :
       {kLoss, kLossSquared, kDriftSquared, kWeightedDriftSquared, kGradientSquared}) {
    EXPECT_EQ(report.number(name), before.number(name)) << name;
  }
}

TYPED_TEST(ReportStepTest, ShorterDisplacementsAreLeftAloneBitForBit) {
  for (const bool clip : {false, true}) {
    v1::Task task = Training();
    task.set_clip(clip);
    const TaskSums sums(task, kDimension);
    const NamedReport<TypeParam> before = RandomReport<TypeParam>(sums, 2);
    // Also one that is exactly as long as it may be, and without a limit.
    const double norm = std::sqrt(before.number(kDisplacementSquared));
    for (const double max_norm : {norm * (1 + 1e-12), 10 * norm, 0.0}) {
      task.set_max_norm(max_norm);
      NamedReport<TypeParam> report = before;
      ASSERT_TRUE(MakeNormLimit()->Apply({task, sums}, report.report()).ok()) << max_norm;
      EXPECT_EQ(report.report().vectors, before.report().vectors);
      EXPECT_EQ(report.report().numbers, before.report().numbers);
    }
  }
}

TYPED_TEST(ReportStepTest, ALimitSaysNothingOfTasksWithoutADisplacement) {
  v1::Task task;
  Ask(kGradient, task);
  Ask(kLoss, task);
  task.set_max_norm(1e-3);
  const TaskSums sums(task, kDimension);
  NamedReport<TypeParam> report = RandomReport<TypeParam>(sums, 3);
  const std::vector<TypeParam> before = report.report().vectors;
  EXPECT_TRUE(MakeNormLimit()->Apply({task, sums}, report.report()).ok());
  EXPECT_EQ(report.report().vectors, before);
}

v1::Task Encoded(v1::WireEncoding encoding) {
  v1::Task task = Training();
  Ask(kDrift, task, 3);
  for (const uint32_t steps : {0u, 3u}) Ask(kEncodingVariance, task, steps);
  Ask(kEncodingError, task);
  task.set_encoding(encoding);
  SetRange(256, 100, task);
  return task;
}

TYPED_TEST(ReportStepTest, WhatIsKeptOfAShortEncodingIsWhatAReaderDecodes) {
  for (const v1::WireEncoding encoding : {v1::BFLOAT16_WIRE, v1::INT8_WIRE}) {
    const v1::Task task = Encoded(encoding);
    const TaskSums sums(task, kDimension);
    const NamedReport<TypeParam> exact = RandomReport<TypeParam>(sums, 4);
    NamedReport<TypeParam> report = exact;
    const ReportContext context{task, sums, 7, 3, ClientKey("a")};
    ASSERT_TRUE(MakeShortEncoding()->Apply(context, report.report()).ok());

    const v1::Encoding wire = EncodingFor(encoding, std::is_same_v<TypeParam, double>);
    const size_t bytes = EncodedSize(wire, kDimension);
    const std::string& encoded = report.report().encoded;
    ASSERT_EQ(encoded.size(), sums.vectors() * bytes);
    std::vector<float> decoded(sums.vectors() * kDimension);
    for (size_t k = 0; k < sums.vectors(); ++k) {
      ASSERT_TRUE(
          DecodeShort(wire, {reinterpret_cast<const std::byte*>(encoded.data()) + k * bytes, bytes},
                      absl::MakeSpan(decoded).subspan(k * kDimension, kDimension))
              .ok());
    }
    EXPECT_EQ(std::vector<float>(report.report().vectors.begin(), report.report().vectors.end()),
              decoded);
    EXPECT_NE(report.report().vectors, exact.report().vectors);  // it is lossy

    // The errors are those of what a reader has, and the squares those of what was exact.
    const auto error = [&](const char* name, uint32_t steps) {
      return (report.vector(name, steps).template cast<double>() -
              exact.vector(name, steps).template cast<double>())
          .squaredNorm();
    };
    ASSERT_GT(error(kDisplacement, 0), 0);
    EXPECT_NEAR(report.number(kEncodingError), error(kDisplacement, 0),
                1e-12 * error(kDisplacement, 0));
    for (const uint32_t steps : {0u, 3u}) {
      const double expected = static_cast<double>(kWeight) * error(kDrift, steps);
      EXPECT_NEAR(report.number(kEncodingVariance, steps), expected, 1e-12 * expected);
    }
    for (const char* name : {kLoss, kLossSquared, kDisplacementSquared, kDriftSquared,
                             kWeightedDriftSquared, kGradientSquared}) {
      EXPECT_EQ(report.number(name), exact.number(name)) << name;
    }
  }
}

// The rounding is random, and named by run, round and client.
TYPED_TEST(ReportStepTest, RoundingIsNamedByRunRoundAndClient) {
  const v1::Task task = Encoded(v1::INT8_WIRE);
  const TaskSums sums(task, kDimension);
  const auto bytes = [&](uint64_t seed, uint64_t round, uint64_t client) {
    NamedReport<TypeParam> report = RandomReport<TypeParam>(sums, 4);
    EXPECT_TRUE(
        MakeShortEncoding()->Apply({task, sums, seed, round, client}, report.report()).ok());
    return report.report().encoded;
  };
  EXPECT_EQ(bytes(1, 2, 3), bytes(1, 2, 3));
  EXPECT_NE(bytes(1, 2, 3), bytes(9, 2, 3));
  EXPECT_NE(bytes(1, 2, 3), bytes(1, 9, 3));
  EXPECT_NE(bytes(1, 2, 3), bytes(1, 2, 9));
}

// Clipped first, then written: the norm that the server checks is that of what it reads.
TYPED_TEST(ReportStepTest, ATaskGetsTheStepsThatItAsksForInOrder) {
  v1::Task task = Training();
  EXPECT_THAT(StepsFor(task), SizeIs(0));
  task = Encoded(v1::BFLOAT16_WIRE);
  EXPECT_THAT(StepsFor(task), SizeIs(1));
  task.set_max_norm(2);
  task.set_clip(true);
  const auto steps = StepsFor(task);
  ASSERT_THAT(steps, SizeIs(2));
  const TaskSums sums(task, kDimension);
  NamedReport<TypeParam> clipped = RandomReport<TypeParam>(sums, 5);
  NamedReport<TypeParam> report = clipped;
  const ReportContext context{task, sums, 7, 3, 1};
  ASSERT_TRUE(MakeNormLimit()->Apply(context, clipped.report()).ok());
  for (const auto& step : steps) ASSERT_TRUE(step->Apply(context, report.report()).ok());
  EXPECT_NEAR(Norm(report.vector(kDisplacement)), 2, 0.02);
  const double error = (report.vector(kDisplacement).template cast<double>() -
                        clipped.vector(kDisplacement).template cast<double>())
                           .squaredNorm();
  EXPECT_NEAR(report.number(kEncodingError), error, 1e-12 * error);
  EXPECT_EQ(report.number(kDisplacementSquared), clipped.number(kDisplacementSquared));
}

}  // namespace
}  // namespace leeway
