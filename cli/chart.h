// Line charts as SVG that stands alone: for a page, a file or paper. Colours are
// told apart by colour-blind readers (Okabe and Ito) and differ in marker or dash
// too; all text is escaped. Pure functions of values.
#ifndef LEEWAY_CLI_CHART_H_
#define LEEWAY_CLI_CHART_H_

#include <limits>
#include <string>
#include <vector>

namespace leeway {

struct ChartPoint {
  double x = 0;
  double y = 0;
  // An interval around y, drawn as a bar (or a band, for many points). NaN: none.
  double low = std::numeric_limits<double>::quiet_NaN();
  double high = std::numeric_limits<double>::quiet_NaN();
};

// Colours of the palette, each with a marker of its own; a larger number starts again.
inline constexpr int kChartColors = 7;

enum class ChartLine { kSolid, kThin, kDashed, kDotted };

struct ChartSeries {
  std::string name;  // written at the end of its line
  std::vector<ChartPoint> points = {};
  int color = 0;  // into the palette; also chooses the marker
  ChartLine line = ChartLine::kSolid;
  bool markers = true;  // if there are not too many points
};

// A horizontal line across the chart, such as a threshold.
struct ChartGuide {
  double y = 0;
  std::string label;
};

struct ChartAxis {
  std::string title = "";
  bool log = false;
};

struct Chart {
  std::string id;                // for file names and XML ids: letters, digits, _
  std::string title;             // what it shows
  std::string description = "";  // for people who do not see it, and as its caption
  ChartAxis x = {};
  ChartAxis y = {};
  std::vector<ChartSeries> series = {};
  std::vector<ChartGuide> guides = {};
  std::vector<std::string> notes = {};  // shown below

  // Whether at least one point can be drawn.
  bool HasData() const;
};

// kPage leaves out title and notes, which the page shows as text, and lets its style
// sheet set colours by class; kNarrow is the same for a phone, with the names of series below;
// kFile is a complete file.
enum class SvgUse { kPage, kNarrow, kFile };
std::string ChartSvg(const Chart& chart, SvgUse use);

// The chart's own notes, and what a log axis cannot show.
std::vector<std::string> ChartNotes(const Chart& chart);

// All points of all series, also those that a log axis cannot show:
// series,x,y,low,high with 17 digits.
std::string ChartCsv(const Chart& chart);

}  // namespace leeway

#endif  // LEEWAY_CLI_CHART_H_
