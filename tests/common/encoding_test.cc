#include "common/encoding.h"

#include <gmock/gmock.h>

#include <cmath>
#include <vector>

namespace leeway {
namespace {

class EncodingTest : public testing::TestWithParam<v1::Encoding> {
 protected:
  static Rng Random(uint64_t seed) { return Rng(seed, 1, 2, Purpose::kTest); }
  static absl::Span<const std::byte> Bytes(const std::string& bytes) {
    return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
  }
  static std::vector<float> Normals(size_t n) {
    Rng rng = Random(7);
    std::vector<float> values(n);
    for (float& x : values) x = static_cast<float>(0.01 * rng.Normal());
    return values;
  }
};

INSTANTIATE_TEST_SUITE_P(Short, EncodingTest, testing::Values(v1::BFLOAT16, v1::INT8),
                         [](const auto& test) { return v1::Encoding_Name(test.param); });

TEST_P(EncodingTest, ReadsBackWhatTheWriterWasTold) {
  for (const size_t n : {1, 255, 256, 257, 1000}) {
    std::vector<float> values = Normals(n);
    Rng rng = Random(1);
    const std::string bytes = EncodeShort(GetParam(), absl::MakeSpan(values), rng);
    ASSERT_EQ(bytes.size(), EncodedSize(GetParam(), n));
    std::vector<float> read(n);
    ASSERT_TRUE(DecodeShort(GetParam(), Bytes(bytes), absl::MakeSpan(read)).ok());
    EXPECT_EQ(read, values);
  }
}

TEST_P(EncodingTest, Float64ModelsGetTheSameBytes) {
  std::vector<float> narrow = Normals(600);
  std::vector<double> wide(narrow.begin(), narrow.end());
  Rng first = Random(3);
  Rng second = Random(3);
  EXPECT_EQ(EncodeShort(GetParam(), absl::MakeSpan(narrow), first),
            EncodeShort(GetParam(), absl::MakeSpan(wide), second));
  EXPECT_EQ(std::vector<double>(narrow.begin(), narrow.end()), wide);
}

// The mean over many roundings is the value, within five standard errors.
TEST_P(EncodingTest, RoundsWithoutBias) {
  const std::vector<float> values = Normals(64);
  constexpr int kTimes = 4000;
  std::vector<double> sum(values.size()), squares(values.size());
  Rng rng = Random(5);
  for (int t = 0; t < kTimes; ++t) {
    std::vector<float> rounded = values;
    EncodeShort(GetParam(), absl::MakeSpan(rounded), rng);
    for (size_t i = 0; i < values.size(); ++i) {
      const double error = static_cast<double>(rounded[i]) - static_cast<double>(values[i]);
      sum[i] += error;
      squares[i] += error * error;
    }
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const double standard_error = std::sqrt(squares[i]) / kTimes;
    EXPECT_LE(std::abs(sum[i] / kTimes), 5 * standard_error + 1e-12) << values[i];
  }
}

TEST_P(EncodingTest, KeepsZerosAndTheLargestValue) {
  std::vector<float> values = {0, -1.5F, 0, 1.5F, 0.75F};
  Rng rng = Random(9);
  EncodeShort(GetParam(), absl::MakeSpan(values), rng);
  EXPECT_EQ(values[0], 0);
  EXPECT_EQ(values[2], 0);
  EXPECT_NEAR(values[1], -1.5, 1e-6);
  EXPECT_NEAR(values[3], 1.5, 1e-6);
}

TEST(Int8Test, RefusesAScaleThatIsNotFinite) {
  std::string bytes(EncodedSize(v1::INT8, 3), '\1');
  const float scale = std::nanf("");
  bytes.replace(0, sizeof(scale), reinterpret_cast<const char*>(&scale), sizeof(scale));
  std::vector<float> out(3);
  const absl::Status status =
      DecodeShort(v1::INT8, {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()},
                  absl::MakeSpan(out));
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("scale"));
}

}  // namespace
}  // namespace leeway
