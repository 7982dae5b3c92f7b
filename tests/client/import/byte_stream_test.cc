#include "client/import/byte_stream.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "client/import/client_name.h"
#include "tests/client/import/test_files.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string LongText() {
  std::string text;
  for (int i = 0; i < 60000; ++i) absl::StrAppend(&text, i * 7919 % 10007, "\n");
  return text;
}

TEST(ByteStreamTest, GzipReadsAsThePlainFileAlsoInSeveralMembers) {
  TempDir dir;
  const std::string text = LongText();
  const std::string plain = dir.Write("plain", text);
  const std::string members =
      dir.Write("members", Gzip(text.substr(0, 1000)) + Gzip("") + Gzip(text.substr(1000)));
  EXPECT_EQ(ReadAll(plain).value(), text);
  EXPECT_EQ(ReadAll(members).value(), text);
}

TEST(ByteStreamTest, EveryTruncationOfAGzipFileIsFound) {
  TempDir dir;
  const std::string gzip = Gzip("one line\nand another that is longer\n");
  for (size_t size = 2; size < gzip.size(); ++size) {
    const std::string path = dir.Write("cut.gz", gzip.substr(0, size));
    const absl::StatusOr<std::string> text = ReadAll(path);
    ASSERT_FALSE(text.ok()) << size << " of " << gzip.size();
    EXPECT_THAT(text.status().message(), HasSubstr("cut.gz: the gzip data end too early"));
  }
}

TEST(ByteStreamTest, CorruptGzipIsFound) {
  TempDir dir;
  std::string gzip = Gzip(LongText());
  gzip[gzip.size() / 2] = static_cast<char>(gzip[gzip.size() / 2] ^ 0x55);
  EXPECT_THAT(ReadAll(dir.Write("bad.gz", gzip)).status().message(),
              HasSubstr("bad.gz: the gzip data are corrupt"));
}

TEST(LineReaderTest, LinesComeWithoutTheirEnds) {
  TempDir dir;
  LineReader reader = LineReader::Open(dir.Write("lines", "a\r\n\nlast")).value();
  std::vector<std::string> lines;
  for (std::string line; reader.Next(&line).value();) lines.push_back(line);
  EXPECT_THAT(lines, ElementsAre("a", "", "last"));
  EXPECT_EQ(reader.Where(), dir / "lines:3");
}

TEST(ClientNameTest, NamesAreSafeAndDistinct) {
  EXPECT_EQ(DirectoryName("f3137_47"), "f3137_47");
  EXPECT_EQ(DirectoryName("KING LEAR é"), "KING LEAR é");
  EXPECT_EQ(DirectoryName("../etc"), "%2E.%2Fetc");
  EXPECT_EQ(DirectoryName(".."), "%2E.");
  EXPECT_EQ(DirectoryName("a%2Fb"), "a%252Fb");
  EXPECT_EQ(DirectoryName(std::string("a\0b\n", 4)), "a%00b%0A");
  EXPECT_EQ(DirectoryName("\xff"), "%FF");
  // A direction override, a zero-width space, a control character of two bytes.
  EXPECT_EQ(DirectoryName("a\u202eb\u200bc\u0085"), "a%E2%80%AEb%E2%80%8Bc%C2%85");
  EXPECT_EQ(Printable("100 %\u2066\x1b[31m"), "100 %%E2%81%A6%1B[31m");
  EXPECT_EQ(Printable("\u05d0\u4e2d\U0001f600"), "\u05d0\u4e2d\U0001f600");
  EXPECT_EQ(DirectoryName(""), "%");
  EXPECT_NE(DirectoryName("federation.json"), "federation.json");
  const std::string longest(300, 'x');
  EXPECT_LE(DirectoryName(longest).size(), 200U);
  EXPECT_NE(DirectoryName(longest), DirectoryName(longest + "y"));
}

}  // namespace
}  // namespace leeway
