// How a run's records become points of charts.
#ifndef LEEWAY_CLI_CHART_DATA_H_
#define LEEWAY_CLI_CHART_DATA_H_

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "cli/chart.h"
#include "proto/record.pb.h"

namespace leeway {

// NaN is what was not measured.
inline void AddPoint(double x, double y, ChartSeries& series) {
  if (std::isfinite(y)) series.points.push_back({.x = x, .y = y});
}

inline void Keep(ChartSeries series, Chart& chart) {
  if (!series.points.empty()) chart.series.push_back(std::move(series));
}

// Rounds done before this record's model was measured.
inline double RoundsDone(const v1::RoundRecord& record) {
  return static_cast<double>(record.round_in_phase()) - 1;
}

// A measure of training rounds, with that of the model at the end where `end` is measured.
template <typename Value>
void AddRounds(const std::vector<v1::RoundRecord>& rounds,
               const std::optional<v1::RoundRecord>& end, const Value& value, ChartSeries& series) {
  for (const v1::RoundRecord& round : rounds) AddPoint(RoundsDone(round), value(round), series);
  if (end) {
    AddPoint(static_cast<double>(rounds.back().round_in_phase()), value(*end), series);
  }
}

// Few enough points, with the peaks kept: of each run of points its lowest and
// its highest.
inline std::vector<ChartPoint> Thin(const std::vector<ChartPoint>& points) {
  constexpr size_t kMostPoints = 600;  // of a drawn line; more cannot be seen
  if (points.size() <= kMostPoints) return points;
  const size_t bucket = (points.size() + kMostPoints / 2 - 1) / (kMostPoints / 2);
  const auto lower = [](const ChartPoint& a, const ChartPoint& b) { return a.y < b.y; };
  std::vector<ChartPoint> thin = {points.front()};
  for (size_t i = 0; i < points.size(); i += bucket) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(i);
    const auto end =
        points.begin() + static_cast<std::ptrdiff_t>(std::min(i + bucket, points.size()));
    auto [low, high] = std::minmax_element(begin, end, lower);
    if (high < low) std::swap(low, high);
    thin.push_back(*low);
    if (low != high) thin.push_back(*high);
  }
  thin.push_back(points.back());
  return thin;
}

// Whether the values call for a logarithmic axis.
inline bool SpansDecades(const Chart& chart) {
  constexpr double kManyTimes = 30;  // between smallest and largest
  double low = std::numeric_limits<double>::infinity();
  double high = 0;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      low = std::min(low, point.y);
      high = std::max(high, point.y);
    }
  }
  return low > 0 && high > kManyTimes * low;
}

}  // namespace leeway

#endif  // LEEWAY_CLI_CHART_DATA_H_
