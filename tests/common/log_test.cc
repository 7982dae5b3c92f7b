#include "common/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

const absl::Time kTime = absl::FromUnixMillis(1500);

LogLine Line(const std::string& client, const std::string& text) {
  LogLine line;
  line.what = "refused";
  line.client = client;
  line.text = text;
  line.run = "r1";
  line.round = 7;
  line.level = LogLine::Level::kWarning;
  return line;
}

TEST(FormatLineTest, ALineNamesTimeLevelRunRoundClientAndReason) {
  EXPECT_EQ(FormatLine(Line("a", "too large; scale it"), kTime, LogFormat::kText),
            "1970-01-01T00:00:01.500Z warning run r1 round 7 refused a: too large; scale it\n");
  const auto json =
      nlohmann::json::parse(FormatLine(Line("a", "x \"y\""), kTime, LogFormat::kJson));
  EXPECT_EQ(json["time"], "1970-01-01T00:00:01.500Z");
  EXPECT_EQ(json["level"], "warning");
  EXPECT_EQ(json["run"], "r1");
  EXPECT_EQ(json["round"], 7);
  EXPECT_EQ(json["client"], "a");
  EXPECT_EQ(json["text"], "x \"y\"");
}

TEST(FormatLineTest, NothingEndsALineEarly) {
  const std::string client = absl::StrCat("a\nb\r", std::string(1, '\0'), "\xff");
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    const std::string line = FormatLine(Line(client, std::string(100'000, '\n')), kTime, format);
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    EXPECT_LE(line.size(), 8192u);
  }
}

TEST(RateLimitTest, SomePassAndThenOneAPeriod) {
  RateLimit limit(2, absl::Minutes(1));
  EXPECT_EQ(limit.Pass("a", kTime), 0u);
  EXPECT_EQ(limit.Pass("a", kTime), 0u);
  EXPECT_EQ(limit.Pass("a", kTime), std::nullopt);
  EXPECT_EQ(limit.Pass("b", kTime), 0u);
  EXPECT_EQ(limit.Pass("a", kTime + absl::Seconds(59)), std::nullopt);
  EXPECT_EQ(limit.Pass("a", kTime + absl::Seconds(60)), 2u);
  EXPECT_EQ(limit.Pass("a", kTime + absl::Seconds(61)), std::nullopt);
}

TEST(RateLimitTest, CausesWithoutEndTakeBoundedSpace) {
  RateLimit limit(1, absl::Minutes(1));
  size_t passed = 0;
  for (int i = 0; i < 100'000; ++i) passed += limit.Pass(absl::StrCat(i), kTime).has_value();
  EXPECT_LE(passed, 10'001u);
}

class LogTest : public testing::Test {
 protected:
  LogTest() { EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0); }
  ~LogTest() override {
    close(ends_[0]);
    close(ends_[1]);
  }
  // All that is in the pipe.
  std::string Read() {
    fcntl(ends_[0], F_SETFL, O_NONBLOCK);
    std::string text(1 << 20, '\0');
    size_t size = 0;
    ssize_t got = 0;
    while ((got = read(ends_[0], text.data() + size, text.size() - size)) > 0) {
      size += static_cast<size_t>(got);
    }
    text.resize(size);
    return text;
  }
  int ends_[2];
};

TEST_F(LogTest, LinesComeInOrder) {
  {
    Log log(ends_[1], LogFormat::kText);
    for (int i = 0; i < 100; ++i) log.Write(Line(absl::StrCat("client", i), "no"));
  }
  const std::vector<std::string> lines = absl::StrSplit(Read(), '\n');
  ASSERT_EQ(lines.size(), 101u);
  for (size_t i = 0; i < 100; ++i) EXPECT_THAT(lines[i], HasSubstr(absl::StrCat("client", i, ":")));
}

TEST_F(LogTest, WhereNobodyReadsLinesAreDroppedAndCounted) {
  Log log(ends_[1], LogFormat::kText);
  const std::string text(1000, 'x');
  // More than the pipe and the queue hold. Would never return if a line waited for a reader.
  for (int i = 0; i < 5000; ++i) log.Write(Line(absl::StrCat(i), text));
  EXPECT_GT(log.dropped(), 1000u);
}

TEST_F(LogTest, TheSameFromTheSameClientIsLimited) {
  {
    Log log(ends_[1], LogFormat::kText);
    for (int i = 0; i < 10'000; ++i) log.Write(Line("a", absl::StrCat("failure ", i)));
  }
  EXPECT_LT(Read().size(), 4000u);
}

}  // namespace
}  // namespace leeway
