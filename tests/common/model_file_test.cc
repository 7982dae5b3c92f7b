#include "common/model_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/digest.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

const std::vector<TensorSpec>& Tensors() {
  static const auto& tensors = *new std::vector<TensorSpec>{{"weight", {2, 3}}, {"bias", {2}}};
  return tensors;
}

template <typename T>
Vector<T> Values() {
  Vector<T> values(8);
  values << T(0.1), T(-0.0), T(3), T(4), T(5), T(6), T(7), T(-8);
  return values;
}

// A file with any header.
std::string File(absl::string_view header, absl::string_view data) {
  const uint64_t length = header.size();
  return absl::StrCat(absl::string_view(reinterpret_cast<const char*>(&length), 8), header, data);
}

TEST(ModelFileTest, BytesAreTheDocumentedOnes) {
  const std::string bytes = EncodeModel(Tensors(), Values<double>());
  std::string header = R"({"weight":{"dtype":"F64","shape":[2,3],"data_offsets":[0,48]},)"
                       R"("bias":{"dtype":"F64","shape":[2],"data_offsets":[48,64]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  const Vector<double> values = Values<double>();
  EXPECT_EQ(bytes, File(header, {reinterpret_cast<const char*>(values.data()), 64}));
  EXPECT_EQ((bytes.size() - 64) % 8, 0u);
}

template <typename T>
void ExpectRoundTrip() {
  const std::string bytes = EncodeModel(Tensors(), Values<T>());
  const auto decoded = DecodeModel(bytes, Tensors(), "m");
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ASSERT_TRUE(std::holds_alternative<Vector<T>>(*decoded));
  EXPECT_EQ(EncodeModel(Tensors(), *decoded), bytes);
}

TEST(ModelFileTest, RoundTripKeepsEveryBit) {
  ExpectRoundTrip<float>();
  ExpectRoundTrip<double>();
}

TEST(ModelFileTest, ModelsDifferingInOneBitHaveDifferentNames) {
  Vector<double> other = Values<double>();
  other[1] = 0.0;  // instead of -0.0
  EXPECT_NE(Sha256Hex(EncodeModel(Tensors(), Values<double>())),
            Sha256Hex(EncodeModel(Tensors(), other)));
}

TEST(ModelFileTest, AcceptsOtherWritersOfTheSameFormat) {
  const std::string data(32, '\0');
  EXPECT_TRUE(DecodeModel(File(R"({"bias": {"data_offsets": [24, 32], "dtype": "F32",
        "shape": [2]}, "__metadata__": {"format": "pt"},
        "weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}})",
                               data),
                          Tensors(), "m")
                  .ok());
}

struct BadFile {
  std::string what;
  std::string bytes;
  std::string message;
};

std::vector<BadFile> BadFiles() {
  const std::string good = EncodeModel(Tensors(), Values<double>());
  const std::string data = good.substr(good.size() - 64);
  const std::string header = good.substr(8, good.size() - 72);
  const auto edited = [&](absl::string_view from, absl::string_view to) {
    return File(absl::StrReplaceAll(header, {{from, to}}), data);
  };
  std::string long_header = good, endless = good;
  const uint64_t beyond = good.size() - 7;
  std::memcpy(long_header.data(), &beyond, 8);
  std::memset(endless.data(), 0xff, 8);
  return {
      {"empty", "", "truncated"},
      {"short prefix", good.substr(0, 5), "truncated"},
      {"header beyond the file", long_header, "truncated"},
      {"header of 2^64-1", endless, "claims"},
      {"no values", good.substr(0, good.size() - 64), "truncated: 0 bytes"},
      {"half a value", good.substr(0, good.size() - 4), "truncated: 60 bytes"},
      {"trailing", good + "x", "trailing bytes"},
      {"not json", File("{\"weight\":", data), "JSON"},
      {"empty header", File("", data), "JSON"},
      {"array", File("[1,2]", data), "not a JSON object"},
      {"null", File("null", data), "not a JSON object"},
      {"deep", File(std::string(100000, '['), data), "JSON"},
      {"invalid utf-8", File("{\"\xff\":1}", data), "JSON"},
      {"tensor is a number", File(R"({"weight":1,"bias":2})", data), "weight"},
      {"missing tensor", edited("bias", "bios"), "bias"},
      {"additional tensor", edited("{\"weight\"", R"({"x":{},"weight")"), "3 tensors"},
      {"duplicate", edited("{\"weight\"", R"({"bias":{},"weight")"), "twice"},
      {"duplicate inside", edited("\"shape\":[2]", R"("shape":[2],"shape":[2])"), "twice"},
      {"other dtype", edited("F64", "BF16"), "weight"},
      {"mixed dtypes", edited(R"("bias":{"dtype":"F64")", R"("bias":{"dtype":"F32")"), "bias"},
      {"dtype is a number", edited("\"F64\"", "64"), "weight"},
      {"other shape", edited("[2,3]", "[3,2]"), "weight"},
      {"flat shape", edited("[2,3]", "[6]"), "weight"},
      {"shape as text", edited("[2,3]", "\"2,3\""), "weight"},
      {"shape of floats", edited("[2,3]", "[2.0,3.0]"), "weight"},
      {"negative offset", edited("[0,48]", "[-48,48]"), "weight"},
      {"huge offset", edited("[48,64]", "[48,99999999999999999999999]"), "bias"},
      {"overlap", edited("[48,64]", "[40,56]"), "bias"},
      {"three offsets", edited("[48,64]", "[48,64,80]"), "bias"},
  };
}

TEST(ModelFileTest, RefusesCorruptFilesByName) {
  for (const BadFile& bad : BadFiles()) {
    SCOPED_TRACE(bad.what);
    const auto model = DecodeModel(bad.bytes, Tensors(), "round-7.safetensors");
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(model.status().message(), HasSubstr("round-7.safetensors"));
    EXPECT_THAT(model.status().message(), HasSubstr(bad.message));
  }
}

TEST(ModelFileTest, NoTruncationOrFlippedByteIsFatal) {
  const std::string good = EncodeModel(Tensors(), Values<double>());
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(DecodeModel(good.substr(0, length), Tensors(), "cut").ok()) << length;
  }
  for (size_t i = 0; i < good.size() - 64; ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      const auto model = DecodeModel(bytes, Tensors(), "flipped");
      if (model.ok()) {
        EXPECT_EQ(SizeOf(*model), 8);
      }
    }
  }
}

}  // namespace
}  // namespace leeway
