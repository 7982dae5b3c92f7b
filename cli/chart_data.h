// How a run's records become points of charts.
#ifndef LEEWAY_CLI_CHART_DATA_H_
#define LEEWAY_CLI_CHART_DATA_H_

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

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
