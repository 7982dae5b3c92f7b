#include "cli/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <regex>
#include <string>
#include <vector>

#include "cli/scale.h"
#include "common/utf8.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

Chart LogChart(std::vector<ChartPoint> points) {
  Chart chart{.id = "c", .title = "t", .description = "d"};
  chart.x = {.title = "x", .log = true};
  chart.y = {.title = "y", .log = true};
  chart.series = {{.name = "s", .points = std::move(points)}};
  return chart;
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// All numbers in paths and places are finite and on the canvas.
void ExpectSoundNumbers(const std::string& svg) {
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  static const std::regex kPath(" d=\"([^\"]*)\"");
  static const std::regex kNumber("-?[0-9.]+");
  for (std::sregex_iterator path(svg.begin(), svg.end(), kPath), end; path != end; ++path) {
    const std::string d = (*path)[1];
    EXPECT_FALSE(d.empty());
    for (std::sregex_iterator number(d.begin(), d.end(), kNumber); number != end; ++number) {
      const double value = std::strtod(number->str().c_str(), nullptr);
      EXPECT_LT(std::abs(value), 1000) << d;
    }
  }
}

std::vector<std::string> Labels(const Scale& scale) {
  std::vector<std::string> labels;
  for (const Tick& tick : scale.ticks()) labels.push_back(tick.label);
  return labels;
}

TEST(ScaleTest, LinearTicksAreRound) {
  EXPECT_THAT(Labels(Scale(false, 0, 200, true)), ElementsAre("0", "50", "100", "150", "200"));
  EXPECT_THAT(Labels(Scale(false, -0.13, 0.42, true)),
              ElementsAre("-0.2", "-0.1", "0", "0.1", "0.2", "0.3", "0.4", "0.5"));
  const Scale scale(false, 3, 97, true);
  EXPECT_LE(scale.low(), 3);
  EXPECT_GE(scale.high(), 97);
}

TEST(ScaleTest, LogTicksAreOneTwoFiveOrDecades) {
  EXPECT_THAT(Labels(Scale(true, 1, 100, false)),
              ElementsAre("1", "2", "5", "10", "20", "50", "100"));
  EXPECT_THAT(Labels(Scale(true, 2e-9, 3e-4, true)),
              ElementsAre("10⁻⁹", "10⁻⁸", "10⁻⁷", "10⁻⁶", "10⁻⁵", "10⁻⁴", "10⁻³"));
  EXPECT_THAT(Scale(true, 1e-280, 1e250, true).ticks(), SizeIs(testing::Lt(13u)));
}

TEST(ScaleTest, EveryRangeHasTicksInOrderAndInside) {
  for (const bool log : {false, true}) {
    for (const double low : {1e-290, 1e-7, 0.37, 1.0, 17.0, 1e9, 1e290}) {
      for (const double factor : {1.0, 1.0000001, 1.3, 2.0, 7.0, 1e3, 1e9}) {
        for (const bool round : {false, true}) {
          const Scale scale(log, low, low * factor, round);
          ASSERT_GE(scale.ticks().size(), 2u) << log << " " << low << " " << factor;
          EXPECT_LE(scale.ticks().size(), 13u) << log << " " << low << " " << factor;
          double last = -1;
          for (const Tick& tick : scale.ticks()) {
            const double at = scale.At(tick.value);
            EXPECT_GT(at, last);
            EXPECT_GE(at, -1e-6);
            EXPECT_LE(at, 1 + 1e-6);
            last = at;
          }
        }
      }
    }
  }
}

TEST(ShortNumberTest, IsForPeople) {
  EXPECT_EQ(ShortNumber(0), "0");
  EXPECT_EQ(ShortNumber(0.25), "0.25");
  EXPECT_EQ(ShortNumber(-1500), "-1500");
  EXPECT_EQ(ShortNumber(2.5e-7), "2.5×10⁻⁷");
  EXPECT_EQ(ShortNumber(1e12), "10¹²");
  EXPECT_EQ(ShortNumber(9.9999e-5), "10⁻⁴");
  EXPECT_EQ(ShortNumber(std::nan("")), "–");
}

TEST(ChartTest, DrawsLineMarkersLabelsAndTexts) {
  Chart chart = LogChart({{1, 1e-3}, {10, 1e-5}, {100, 2e-6}});
  const std::string svg = ChartSvg(chart, SvgUse::kFile);
  EXPECT_EQ(Count(svg, "class=\"marker\""), 3u);
  EXPECT_EQ(Count(svg, "class=\"line\""), 1u);
  EXPECT_THAT(svg, HasSubstr("<title id=\"c-title\">t</title>"));
  EXPECT_THAT(svg, HasSubstr("<desc id=\"c-desc\">d</desc>"));
  EXPECT_THAT(svg, HasSubstr("<?xml"));
  EXPECT_THAT(ChartSvg(chart, SvgUse::kPage), Not(HasSubstr("<?xml")));
  ExpectSoundNumbers(svg);
}

TEST(ChartTest, ALogAxisLeavesOutZerosAndSaysSo) {
  const Chart chart = LogChart({{1, 0}, {2, -1e-9}, {5, 1e-3}, {10, 1e-4}});
  const std::string svg = ChartSvg(chart, SvgUse::kFile);
  EXPECT_EQ(Count(svg, "class=\"marker\""), 2u);
  ExpectSoundNumbers(svg);
  EXPECT_THAT(ChartNotes(chart), ElementsAre(HasSubstr("log axis cannot show: 2 of s.")));
  EXPECT_THAT(svg, HasSubstr("log axis cannot show: 2 of s."));
  EXPECT_TRUE(chart.HasData());
}

TEST(ChartTest, NothingToDrawIsStillAChart) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const Chart& chart : {LogChart({}), LogChart({{1, 0}}), LogChart({{1, std::nan("")}}),
                             LogChart({{1, inf}, {0, 1}, {-inf, 1}})}) {
    EXPECT_FALSE(chart.HasData());
    ExpectSoundNumbers(ChartSvg(chart, SvgUse::kFile));
  }
}

TEST(ChartTest, ExtremesStayFinite) {
  for (const bool log : {false, true}) {
    Chart chart = LogChart({{1, 1e-299}, {1, 1e299}, {1e9, -1e299}, {1e-9, 5}});
    chart.x.log = chart.y.log = log;
    ExpectSoundNumbers(ChartSvg(chart, SvgUse::kFile));
  }
  ExpectSoundNumbers(ChartSvg(LogChart({{10, 3}}), SvgUse::kFile));  // a single point
}

TEST(ChartTest, IntervalsAreBarsOrABand) {
  std::vector<ChartPoint> points;
  for (int i = 1; i <= 10; ++i) points.push_back({.x = 1.0 * i, .y = 2, .low = 1, .high = 3});
  EXPECT_EQ(Count(ChartSvg(LogChart(points), SvgUse::kPage), "class=\"bar\""), 10u);
  for (int i = 11; i <= 100; ++i) points.push_back({.x = 1.0 * i, .y = 2, .low = 1, .high = 3});
  EXPECT_EQ(Count(ChartSvg(LogChart(points), SvgUse::kPage), "class=\"band\""), 1u);
  // One that reaches below zero is open at the axis, and says so.
  const Chart open = LogChart({{.x = 1, .y = 2, .low = -1, .high = 3}});
  ExpectSoundNumbers(ChartSvg(open, SvgUse::kFile));
  EXPECT_THAT(ChartNotes(open), ElementsAre(HasSubstr("include zero")));
}

TEST(ChartTest, ManyPointsAreThinnedButPeaksStay) {
  Chart chart = LogChart({});
  chart.x.log = chart.y.log = false;
  for (int i = 0; i < 100000; ++i) {
    chart.series[0].points.push_back({.x = 1.0 * i, .y = i == 54321 ? 1.0 : 0.5});
  }
  const std::string svg = ChartSvg(chart, SvgUse::kPage);
  EXPECT_LT(svg.size(), 40000u);
  EXPECT_EQ(Count(ChartCsv(chart), "\n"), 100001u);
  Chart flat = chart;
  flat.series[0].points[54321].y = 0.5;
  EXPECT_NE(svg, ChartSvg(flat, SvgUse::kPage));
}

TEST(ChartTest, LabelsDoNotOverlap) {
  Chart chart = LogChart({});
  chart.series.clear();
  for (int i = 0; i < 8; ++i) {
    chart.series.push_back({.name = "same place", .points = {{1, 1}, {10, 1}}, .color = i});
  }
  const std::string svg = ChartSvg(chart, SvgUse::kPage);
  static const std::regex kLabel("class=\"label[^>]* y=\"([0-9.]+)\"");
  std::vector<double> places;
  for (std::sregex_iterator label(svg.begin(), svg.end(), kLabel), end; label != end; ++label) {
    places.push_back(std::strtod((*label)[1].str().c_str(), nullptr));
  }
  ASSERT_EQ(places.size(), 8u);
  for (size_t i = 1; i < places.size(); ++i) EXPECT_GE(places[i], places[i - 1] + 14);
}

TEST(ChartTest, AllTextIsEscaped) {
  const std::string evil = "<script>alert('x')</script>\"&\x01\xff";
  Chart chart{.id = evil, .title = evil, .description = evil};
  chart.x.title = chart.y.title = evil;
  chart.series = {{.name = evil, .points = {{1, 1}, {2, 2}}}};
  chart.guides = {{1.5, evil}};
  chart.notes = {evil};
  for (const SvgUse use : {SvgUse::kFile, SvgUse::kPage}) {
    const std::string svg = ChartSvg(chart, use);
    EXPECT_THAT(svg, Not(HasSubstr("<script")));
    EXPECT_THAT(
        svg, HasSubstr("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp; \xef\xbf\xbd"));
    EXPECT_EQ(svg.find('\x01'), std::string::npos);
  }
}

TEST(ChartCsvTest, HasEveryPointAndQuotesNames) {
  Chart chart = LogChart({{1, 0.1}, {2, 0}});
  chart.series[0].name = "a, \"b\"";
  chart.series[0].points[0].low = 0.05;
  chart.series[0].points[0].high = 0.25;
  EXPECT_EQ(ChartCsv(chart),
            "series,x,y,low,high\n"
            "\"a, \"\"b\"\"\",1,0.10000000000000001,0.050000000000000003,0.25\n"
            "\"a, \"\"b\"\"\",2,0,,\n");
}

TEST(Utf8Test, CountsLetters) {
  EXPECT_EQ(Utf8Length("ρ² = 1"), 6u);
  EXPECT_EQ(Utf8Length("\xff\xce"), 2u);
  EXPECT_EQ(EscapeXml("ρ² < 1"), "ρ² &lt; 1");
  EXPECT_EQ(EscapeXml("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");  // a surrogate
}

}  // namespace
}  // namespace leeway
