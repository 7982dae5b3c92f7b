#include "cli/chart.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/chart_data.h"
#include "cli/scale.h"
#include "common/utf8.h"

namespace leeway {
namespace {

// Okabe and Ito, without the yellow that white paper swallows.
constexpr const char* kColors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                   "#e69f00", "#56b4e9", "#000000"};
static_assert(std::size(kColors) == kChartColors);

constexpr double kLetter = 6.7;  // about the width of one, at 12 px
constexpr double kLine = 15;     // height of a line of text
constexpr size_t kMostMarkers = 40;
constexpr size_t kNoteWidth = 105;  // letters in a line below the chart

std::string Px(double value) { return absl::StrFormat("%.2f", value); }

bool Drawn(const Chart& chart, const ChartPoint& point) {
  return Scale::Shows(chart.x.log, point.x) && Scale::Shows(chart.y.log, point.y);
}

// Of an interval only the upper end may fit on a log axis.
bool HasInterval(const Chart& chart, const ChartPoint& point) {
  return std::isfinite(point.low) && point.low < point.high && Scale::Shows(chart.x.log, point.x) &&
         Scale::Shows(chart.y.log, point.high);
}

// Smallest and largest value to show along an axis.
struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Add(bool log, double value) {
    if (!Scale::Shows(log, value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

Scale MakeScale(const Chart& chart, bool vertical) {
  Range range;
  const bool log = vertical ? chart.y.log : chart.x.log;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      if (Drawn(chart, point)) range.Add(log, vertical ? point.y : point.x);
      if (!HasInterval(chart, point)) continue;
      range.Add(log, vertical ? point.high : point.x);
      // A lower end near zero would take all the room on a log axis.
      if (vertical) range.Add(log, log ? std::max(point.low, point.high / 1000) : point.low);
    }
  }
  for (const ChartGuide& guide : chart.guides) {
    if (!vertical) continue;
    range.Add(log, guide.y);
    if (log) range.Add(log, 2 * guide.y);  // room above it
  }
  if (range.low > range.high) range = {.low = 1, .high = 10};  // nothing to draw
  return Scale(log, range.low, range.high, vertical);
}

std::vector<std::string> Wrap(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (Utf8Length(lines.back()) + Utf8Length(word) > kNoteWidth) lines.emplace_back();
    absl::StrAppend(&lines.back(), lines.back().empty() ? "" : " ", word);
  }
  return lines;
}

// One chart on its way to text.
class Drawing {
 public:
  Drawing(const Chart& chart, SvgUse use)
      : chart_(chart),
        file_(use == SvgUse::kFile),
        narrow_(use == SvgUse::kNarrow),
        width_(narrow_ ? 360 : 720),
        left_(narrow_ ? 62 : 74),
        x_(MakeScale(chart, false)),
        y_(MakeScale(chart, true)) {
    size_t longest = 0;
    for (const ChartSeries& series : chart.series) {
      longest = std::max(longest, Utf8Length(series.name));
    }
    const double labels = std::clamp(16 + kLetter * static_cast<double>(longest), 30.0, 240.0);
    right_ = width_ - (narrow_ ? 14 : labels);
    top_ = file_ ? 40 : 12;
    bottom_ = top_ + (narrow_ ? 220 : 300);
  }

  std::string Draw() {
    std::vector<std::string> notes;
    for (const std::string& note : file_ ? ChartNotes(chart_) : std::vector<std::string>()) {
      for (std::string& line : Wrap(note)) notes.push_back(std::move(line));
    }
    const size_t below = narrow_ ? chart_.series.size() : notes.size();
    const double height = bottom_ + 46 + kLine * static_cast<double>(below);
    Open(height);
    Grid();
    Guides();
    Frame();
    for (const ChartSeries& series : chart_.series) Series(series);
    GuideLabels();
    narrow_ ? Legend() : Labels();
    for (size_t i = 0; i < notes.size(); ++i) {
      Text(left_, bottom_ + 54 + kLine * static_cast<double>(i), "start", "note", notes[i], 11);
    }
    return absl::StrCat(svg_, "</svg>\n");
  }

 private:
  double X(double value) const { return left_ + x_.At(value) * (right_ - left_); }
  double Y(double value) const { return bottom_ - y_.At(value) * (bottom_ - top_); }

  void Open(double height) {
    const std::string id = EscapeXml(chart_.id) + (narrow_ ? "-narrow" : "");
    if (file_) svg_ = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
    absl::StrAppendFormat(
        &svg_,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 %g %g\" "
        "width=\"%g\" height=\"%g\" role=\"img\" aria-labelledby=\"%s-title %s-desc\" "
        "font-family=\"system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif\" "
        "font-size=\"12\">\n<title id=\"%s-title\">%s</title>\n<desc id=\"%s-desc\">%s</desc>\n",
        width_, height, width_, height, id, id, id, EscapeXml(chart_.title), id,
        EscapeXml(chart_.description));
    if (!file_) return;
    absl::StrAppendFormat(&svg_, "<rect width=\"%g\" height=\"%g\" fill=\"#ffffff\"/>\n", width_,
                          height);
    Text(left_, 22, "start", "title", chart_.title, 15);
  }

  void Text(double x, double y, const char* anchor, const char* css, const std::string& text,
            int size = 12) {
    absl::StrAppendFormat(&svg_,
                          "<text class=\"%s\" x=\"%s\" y=\"%s\" text-anchor=\"%s\" "
                          "font-size=\"%d\" fill=\"#333333\">%s</text>\n",
                          css, Px(x), Px(y), anchor, size, EscapeXml(text));
  }

  void Rule(double x1, double y1, double x2, double y2, const char* css, const char* stroke) {
    absl::StrAppendFormat(&svg_,
                          "<path class=\"%s\" d=\"M%s %sL%s %s\" stroke=\"%s\" fill=\"none\"/>\n",
                          css, Px(x1), Px(y1), Px(x2), Px(y2), stroke);
  }

  void Grid() {
    for (const double value : x_.minor())
      Rule(X(value), top_, X(value), bottom_, "fine", "#f1f1f1");
    for (const double value : y_.minor())
      Rule(left_, Y(value), right_, Y(value), "fine", "#f1f1f1");
    for (const Tick& tick : x_.ticks()) {
      Rule(X(tick.value), top_, X(tick.value), bottom_, "grid", "#dddddd");
      Text(X(tick.value), bottom_ + 17, "middle", "tick", tick.label);
    }
    for (const Tick& tick : y_.ticks()) {
      Rule(left_, Y(tick.value), right_, Y(tick.value), "grid", "#dddddd");
      Text(left_ - 8, Y(tick.value) + 4, "end", "tick", tick.label);
    }
  }

  void Frame() {
    absl::StrAppendFormat(
        &svg_, "<path class=\"axis\" d=\"M%s %sV%sH%s\" stroke=\"#666666\" fill=\"none\"/>\n",
        Px(left_), Px(top_), Px(bottom_), Px(right_));
    Text((left_ + right_) / 2, bottom_ + 37, "middle", "axis-title", chart_.x.title, 13);
    absl::StrAppendFormat(&svg_,
                          "<text class=\"axis-title\" transform=\"translate(15 %s) rotate(-90)\" "
                          "text-anchor=\"middle\" font-size=\"13\" fill=\"#333333\">%s</text>\n",
                          Px((top_ + bottom_) / 2), EscapeXml(chart_.y.title));
  }

  void Guides() {
    for (const ChartGuide& guide : chart_.guides) {
      if (!Scale::Shows(chart_.y.log, guide.y)) continue;
      absl::StrAppendFormat(&svg_,
                            "<path class=\"guide\" d=\"M%s %sH%s\" stroke=\"#777777\" "
                            "stroke-dasharray=\"2 3\" fill=\"none\"/>\n",
                            Px(left_), Px(Y(guide.y)), Px(right_));
    }
  }

  // Over the lines, with a rim that keeps them readable there.
  void GuideLabels() {
    for (const ChartGuide& guide : chart_.guides) {
      if (!Scale::Shows(chart_.y.log, guide.y)) continue;
      // On the side with more room: curves come down to low guides and up to high ones.
      const double y = Y(guide.y);
      const bool below = y < top_ + kLine || (y > (top_ + bottom_) / 2 && y < bottom_ - kLine);
      absl::StrAppendFormat(&svg_,
                            "<text class=\"guide-label\" x=\"%s\" y=\"%s\" font-size=\"11\" "
                            "fill=\"#555555\" stroke=\"#ffffff\" stroke-width=\"3\" "
                            "paint-order=\"stroke\">%s</text>\n",
                            Px(left_ + 6), Px(below ? y + 13 : y - 5), EscapeXml(guide.label));
    }
  }

  void Series(const ChartSeries& series);
  void Intervals(const std::vector<ChartPoint>& points);
  void Band(const std::vector<ChartPoint>& points);
  void Marker(int color, double x, double y);
  void Labels();
  void Legend();

  const Chart& chart_;
  const bool file_;
  const bool narrow_;
  const double width_;
  const double left_;
  const Scale x_;
  const Scale y_;
  double right_ = 0;
  double top_ = 0;
  double bottom_ = 0;
  std::string svg_;
};

const char* StrokeOf(ChartLine line) {
  switch (line) {
    case ChartLine::kSolid:
      return "stroke-width=\"2\"";
    case ChartLine::kThin:
      return "stroke-width=\"1.2\"";
    case ChartLine::kDashed:
      return "stroke-width=\"1.6\" stroke-dasharray=\"7 4\"";
    case ChartLine::kDotted:
      return "stroke-width=\"1.8\" stroke-dasharray=\"2 3\"";
  }
  return "";
}

int ColorOf(const ChartSeries& series) { return std::abs(series.color) % kChartColors; }

void Drawing::Series(const ChartSeries& series) {
  const int color = ColorOf(series);
  const std::vector<ChartPoint> points = Thin(series.points);
  absl::StrAppendFormat(&svg_, "<g class=\"s%d\" color=\"%s\">\n", color, kColors[color]);
  Intervals(points);
  std::string path;
  bool connected = false;
  for (const ChartPoint& point : points) {
    const bool drawn = Drawn(chart_, point);
    if (drawn) {
      absl::StrAppend(&path, connected ? "L" : "M", Px(X(point.x)), " ", Px(Y(point.y)));
    }
    connected = drawn;
  }
  if (!path.empty()) {
    absl::StrAppendFormat(&svg_,
                          "<path class=\"line\" d=\"%s\" fill=\"none\" stroke=\"currentColor\" "
                          "stroke-linejoin=\"round\" stroke-linecap=\"round\" %s/>\n",
                          path, StrokeOf(series.line));
  }
  if (series.markers && points.size() <= kMostMarkers) {
    for (const ChartPoint& point : points) {
      if (Drawn(chart_, point)) Marker(color, X(point.x), Y(point.y));
    }
  }
  svg_ += "</g>\n";
}

void Drawing::Intervals(const std::vector<ChartPoint>& points) {
  if (points.size() > kMostMarkers) return Band(points);
  for (const ChartPoint& point : points) {
    if (!HasInterval(chart_, point)) continue;
    const double x = X(point.x);
    const bool open = point.low < y_.low() || !Scale::Shows(chart_.y.log, point.low);
    const double low = open ? bottom_ : Y(point.low);
    absl::StrAppendFormat(&svg_,
                          "<path class=\"bar\" d=\"M%s %sH%sM%s %sV%s%s\" fill=\"none\" "
                          "stroke=\"currentColor\" stroke-width=\"1.2\"/>\n",
                          Px(x - 4), Px(Y(point.high)), Px(x + 4), Px(x), Px(Y(point.high)),
                          Px(low),
                          open ? "" : absl::StrCat("M", Px(x - 4), " ", Px(low), "H", Px(x + 4)));
  }
}

void Drawing::Band(const std::vector<ChartPoint>& points) {
  std::string upper, lower;
  for (const ChartPoint& point : points) {
    if (!HasInterval(chart_, point)) continue;
    const bool open = point.low < y_.low() || !Scale::Shows(chart_.y.log, point.low);
    absl::StrAppend(&upper, upper.empty() ? "M" : "L", Px(X(point.x)), " ", Px(Y(point.high)));
    lower = absl::StrCat("L", Px(X(point.x)), " ", Px(open ? bottom_ : Y(point.low)), lower);
  }
  if (upper.empty()) return;
  absl::StrAppend(&svg_, "<path class=\"band\" d=\"", upper, lower,
                  "Z\" fill=\"currentColor\" fill-opacity=\"0.15\" stroke=\"none\"/>\n");
}

void Drawing::Marker(int color, double x, double y) {
  // Around (0, 0), by colour.
  static constexpr const char* kShapes[] = {
      "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z",               // disc
      "M-3.5-3.5h7v7h-7Z",                                // square
      "M0-4.5L4.5 3.5H-4.5Z",                             // triangle
      "M0-5L5 0L0 5L-5 0Z",                               // diamond
      "M0 4.5L4.5-3.5H-4.5Z",                             // triangle upside down
      "M-4-1.3h2.7V-4h2.6v2.7H4v2.6H1.3V4h-2.6V1.3H-4Z",  // cross
      "M-4.5-2h9v4h-9Z",                                  // bar
  };
  absl::StrAppendFormat(
      &svg_,
      "<path class=\"marker\" transform=\"translate(%s %s)\" d=\"%s\" fill=\"currentColor\"/>\n",
      Px(x), Px(y), kShapes[color]);
}

// Names at the ends of their lines, moved apart where they would overlap.
void Drawing::Labels() {
  struct Label {
    const ChartSeries* series;
    double y;
  };
  std::vector<Label> labels;
  for (const ChartSeries& series : chart_.series) {
    const auto last = std::find_if(series.points.rbegin(), series.points.rend(),
                                   [&](const ChartPoint& point) { return Drawn(chart_, point); });
    if (last != series.points.rend()) labels.push_back({&series, Y(last->y) + 4});
  }
  std::stable_sort(labels.begin(), labels.end(),
                   [](const Label& a, const Label& b) { return a.y < b.y; });
  for (size_t i = 1; i < labels.size(); ++i) {
    labels[i].y = std::max(labels[i].y, labels[i - 1].y + kLine);
  }
  double limit = bottom_ + 4;
  for (auto label = labels.rbegin(); label != labels.rend(); ++label, limit -= kLine) {
    label->y = std::min(label->y, limit);
  }
  for (const Label& label : labels) {
    const int color = ColorOf(*label.series);
    absl::StrAppendFormat(&svg_,
                          "<text class=\"label s%d\" color=\"%s\" x=\"%s\" y=\"%s\" "
                          "fill=\"currentColor\">%s</text>\n",
                          color, kColors[color], Px(right_ + 10), Px(label.y),
                          EscapeXml(label.series->name));
  }
}

// Names below the plot, each beside its marker.
void Drawing::Legend() {
  double y = bottom_ + 56;
  for (const ChartSeries& series : chart_.series) {
    const int color = ColorOf(series);
    absl::StrAppendFormat(&svg_, "<g class=\"s%d\" color=\"%s\">\n", color, kColors[color]);
    absl::StrAppendFormat(
        &svg_, "<path class=\"key\" d=\"M%s %sh22\" fill=\"none\" stroke=\"currentColor\" %s/>\n",
        Px(left_), Px(y - 4), StrokeOf(series.line));
    if (series.markers) Marker(color, left_ + 11, y - 4);
    absl::StrAppendFormat(
        &svg_, "<text class=\"label\" x=\"%s\" y=\"%s\" fill=\"currentColor\">%s</text>\n</g>\n",
        Px(left_ + 30), Px(y), EscapeXml(series.name));
    y += kLine;
  }
}

}  // namespace

bool Chart::HasData() const {
  return std::any_of(series.begin(), series.end(), [&](const ChartSeries& one) {
    return std::any_of(one.points.begin(), one.points.end(),
                       [&](const ChartPoint& point) { return Drawn(*this, point); });
  });
}

std::string ChartSvg(const Chart& chart, SvgUse use) { return Drawing(chart, use).Draw(); }

std::vector<std::string> ChartNotes(const Chart& chart) {
  std::vector<std::string> notes = chart.notes;
  if (!chart.y.log) return notes;
  bool cut = false;
  std::vector<std::string> left_out;
  for (const ChartSeries& series : chart.series) {
    size_t count = 0;
    for (const ChartPoint& point : series.points) {
      if (point.y <= 0) ++count;
      cut = cut || (HasInterval(chart, point) && point.low <= 0);
    }
    if (count > 0) left_out.push_back(absl::StrCat(count, " of ", series.name));
  }
  if (!left_out.empty()) {
    notes.push_back(absl::StrCat("Values at or below zero, which a log axis cannot show: ",
                                 absl::StrJoin(left_out, ", "), "."));
  }
  if (cut) notes.push_back("Bars that reach the lower edge belong to intervals that include zero.");
  return notes;
}

}  // namespace leeway
