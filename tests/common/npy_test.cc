#include "common/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::string_view kMagic = "\x93NUMPY";

// A path in a directory of this process that goes away with it.
std::string TempPath(const std::string& name) {
  static const struct Temporary {
    Temporary() { std::filesystem::create_directory(path); }
    ~Temporary() { std::filesystem::remove_all(path); }
    std::string path = absl::StrCat(::testing::TempDir(), "/npy_test_", ::getpid());
  } directory;
  return absl::StrCat(directory.path, "/", name);
}

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// A file with this version, dictionary and values, its header length right.
std::string File(char version, absl::string_view dictionary, absl::string_view values) {
  std::string length{static_cast<char>(dictionary.size() & 0xff),
                     static_cast<char>(dictionary.size() >> 8)};
  if (version > 1) length.append(2, '\0');
  return absl::StrCat(kMagic, std::string{version, '\0'}, length, dictionary, values);
}

std::string Dictionary(absl::string_view descr, absl::string_view order, absl::string_view shape) {
  return absl::StrCat("{'descr': ", descr, ", 'fortran_order': ", order, ", 'shape': ", shape,
                      ", }\n");
}

// numpy.save of numpy.arange(3, dtype='<i4'), byte for byte.
std::string NumpyExample() {
  std::string bytes(kMagic);
  bytes += std::string("\x01\x00\x76\x00", 4);
  bytes += "{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }";
  bytes += std::string(60, ' ') + "\n";
  bytes += std::string("\x00\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00", 12);
  return bytes;
}

TEST(NpyTest, ReadsWhatNumpyWrites) {
  const auto array = NpyArray::Parse(NumpyExample(), "example");
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_EQ(array->type(), NpyType::kInt32);
  EXPECT_THAT(array->shape(), ElementsAre(3));
  EXPECT_THAT(array->As<int64_t>(), ElementsAre(0, 1, 2));
  EXPECT_THAT(array->As<float>(), ElementsAre(0, 1, 2));
}

TEST(NpyTest, WritesWhatNumpyWrites) {
  const std::string path = TempPath("numpy.npy");
  ASSERT_TRUE(WriteNpy<int32_t>(path, {3}, {0, 1, 2}).ok());
  EXPECT_EQ(ReadAll(path), NumpyExample());
}

template <typename T>
void ExpectRoundTrip(const std::vector<T>& values) {
  const std::string path = TempPath("round.npy");
  const uint64_t half = values.size() / 2;
  ASSERT_TRUE(WriteNpy<T>(path, {2, half}, values).ok());
  const auto array = NpyArray::Map(path);
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_THAT(array->shape(), ElementsAre(2, half));
  ASSERT_EQ(array->size(), values.size());
  EXPECT_EQ(std::memcmp(array->data(), values.data(), values.size() * sizeof(T)), 0);
  EXPECT_EQ(ReadAll(path).size() % 64, values.size() * sizeof(T) % 64);
}

TEST(NpyTest, RoundTripKeepsEveryBit) {
  ExpectRoundTrip<float>({0.1f, -0.0f, 1e-40f, 3});
  ExpectRoundTrip<double>({0.1, -0.0, 5e-324, 1e308});
  ExpectRoundTrip<uint8_t>({0, 1, 128, 255});
  ExpectRoundTrip<int32_t>({-1, 0, 1, std::numeric_limits<int32_t>::min()});
  ExpectRoundTrip<int64_t>({-1, 0, 1, std::numeric_limits<int64_t>::min()});
}

TEST(NpyTest, ReadsAllVersionsAndShapes) {
  const std::string eight(8, '\0');
  for (char version : {'\1', '\2', '\3'}) {
    EXPECT_TRUE(
        NpyArray::Parse(File(version, Dictionary("'<f8'", "False", "(1,)"), eight), "v").ok());
  }
  const auto scalar = NpyArray::Parse(File(1, Dictionary("'<f8'", "False", "()"), eight), "s");
  ASSERT_TRUE(scalar.ok()) << scalar.status();
  EXPECT_EQ(scalar->size(), 1u);
  const auto empty = NpyArray::Parse(File(1, Dictionary("'<f8'", "False", "(0, 30)"), ""), "e");
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_THAT(empty->As<double>(), IsEmpty());
  // Other writers: other order of keys, double quotes, no padding (unaligned).
  const auto other = NpyArray::Parse(
      File(1, "{\"shape\":(1,1),\"fortran_order\":False,\"descr\":\"<f8\"}", eight), "o");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_THAT(other->As<double>(), ElementsAre(0));
}

TEST(NpyTest, ConvertsFloatsToIntegersWithoutOverflow) {
  const std::string path = TempPath("convert.npy");
  const double inf = std::numeric_limits<double>::infinity();
  ASSERT_TRUE(WriteNpy<double>(path, {5}, {2.0, 1e30, -inf, inf, std::nan("")}).ok());
  EXPECT_THAT(
      NpyArray::Map(path)->As<int64_t>(),
      ElementsAre(2, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min(),
                  std::numeric_limits<int64_t>::max(), 0));
}

struct BadFile {
  std::string what;
  std::string bytes;
  std::string message;
};

std::vector<BadFile> BadFiles() {
  const std::string eight(8, '\0');
  const std::string good = File(1, Dictionary("'<f8'", "False", "(1,)"), eight);
  const auto shaped = [&](absl::string_view shape) {
    return File(1, Dictionary("'<f8'", "False", shape), eight);
  };
  const auto typed = [&](absl::string_view descr) {
    return File(1, Dictionary(descr, "False", "(1,)"), eight);
  };
  std::string version = good, minor = good, absurd = good;
  version[6] = 4;
  minor[7] = 1;
  absurd[8] = '\xff', absurd[9] = '\xff';
  return {
      {"empty", "", "empty"},
      {"csv", "1.0,2.0\n3.0,4.0\n", "magic"},
      {"zip", std::string("PK\x03\x04", 4), "magic"},
      {"only magic", std::string(kMagic), "truncated"},
      {"version 4", version, "version 4.0"},
      {"version 1.1", minor, "version 1.1"},
      {"absurd header", absurd, "header of 65535 bytes"},
      {"half a header", good.substr(0, 30), "truncated"},
      {"half the values", good.substr(0, good.size() - 4), "truncated: 4 bytes"},
      {"trailing", good + "x", "trailing bytes: 9 bytes"},
      {"big-endian", typed("'>f8'"), "big-endian"},
      {"complex", typed("'<c16'"), "<c16"},
      {"bool", typed("'|b1'"), "|b1"},
      {"objects", typed("'|O'"), "|O"},
      {"record", typed("[('a', '<f8')]"), "header"},
      {"escape", typed("'<f8\\x00'"), "header"},
      {"fortran", File(1, Dictionary("'<f8'", "True", "(1,)"), eight), "Fortran"},
      {"order 0", File(1, Dictionary("'<f8'", "0", "(1,)"), eight), "header"},
      {"overflow", shaped("(4294967296, 4294967296)"), "63 bits"},
      {"overflow by item", shaped("(2305843009213693952,)"), "63 bits"},
      {"overflow behind 0", shaped("(0, 4294967296, 4294967296)"), "63 bits"},
      {"huge", shaped("(99999999999999999999999,)"), "header"},
      {"negative", shaped("(-1,)"), "header"},
      {"no tuple", shaped("(1)"), "header"},
      {"python 2", shaped("(1L,)"), "header"},
      {"code", shaped("__import__('os')"), "header"},
      {"not a dictionary", File(1, "[1]", eight), "header"},
      {"no shape", File(1, "{'descr': '<f8', 'fortran_order': False}", eight), "header"},
      {"twice",
       File(1, "{'descr': '<f8', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", eight),
       "header"},
      {"other key",
       File(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), 'x': ()}", eight),
       "header"},
      {"text after", File(1, Dictionary("'<f8'", "False", "(1,)") + "{}", eight), "header"},
  };
}

TEST(NpyTest, RefusesCorruptFilesByName) {
  const std::string path = TempPath("bad.npy");
  for (const BadFile& bad : BadFiles()) {
    SCOPED_TRACE(bad.what);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bad.bytes;
    for (const auto& array : {NpyArray::Map(path), NpyArray::Parse(bad.bytes, path)}) {
      EXPECT_EQ(array.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(array.status().message(), HasSubstr(path));
      EXPECT_THAT(array.status().message(), HasSubstr(bad.message));
      EXPECT_THAT(array.status().message(), HasSubstr("numpy.save"));
    }
  }
}

TEST(NpyTest, NoTruncationOrFlippedByteIsFatal) {
  const std::string good = NumpyExample();
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(NpyArray::Parse(good.substr(0, length), "cut").ok()) << length;
  }
  for (size_t i = 0; i < good.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(value);
      const auto array = NpyArray::Parse(bytes, "flipped");
      if (array.ok()) {
        EXPECT_EQ(array->As<double>().size(), array->size());
      }
    }
  }
}

TEST(NpyTest, AFifoIsRefusedAtOnce) {
  const std::string path = TempPath("fifo.npy");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(std::string(NpyArray::Map(path).status().message()),
              HasSubstr("fifo.npy: not a regular file"));
}

TEST(NpyTest, MissingFileAndDirectoryAreNamed) {
  const std::string path = TempPath("missing.npy");
  EXPECT_EQ(NpyArray::Map(path).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(NpyArray::Map(path).status().message(), HasSubstr(path));
  EXPECT_THAT(NpyArray::Map(::testing::TempDir()).status().message(),
              HasSubstr("not a regular file"));
}

TEST(NpyTest, WriteRefusesAWrongShapeAndLeavesNothingBehind) {
  const std::string directory = TempPath("dir");
  std::filesystem::create_directory(directory);
  EXPECT_FALSE(WriteNpy<double>(directory + "/x.npy", {2, 2}, {1.0, 2.0, 3.0}).ok());
  const uint64_t huge = uint64_t{1} << 62;
  EXPECT_FALSE(WriteNpy<double>(directory + "/x.npy", {huge, 4}, {}).ok());
  // Renaming onto a directory fails after the values were written.
  std::filesystem::create_directory(directory + "/y.npy");
  const absl::Status status = WriteNpy<double>(directory + "/y.npy", {1}, {1.0});
  EXPECT_THAT(std::string(status.message()), HasSubstr("y.npy"));
  EXPECT_FALSE(WriteNpy<double>(directory + "/none/z.npy", {1}, {1.0}).ok());
  size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory)) {
    ++entries;
  }
  EXPECT_EQ(entries, 1u);
}

}  // namespace
}  // namespace leeway
