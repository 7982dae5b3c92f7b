#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "cli/chart.h"

namespace leeway {

std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string CsvNumber(double value) {
  if (!std::isfinite(value)) return "";
  char digits[32];
  std::snprintf(digits, sizeof(digits), "%.17g", value);
  return digits;
}

std::string ChartCsv(const Chart& chart) {
  std::string csv = "series,x,y,low,high\n";
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      absl::StrAppend(&csv, CsvField(series.name), ",", CsvNumber(point.x), ",");
      absl::StrAppend(&csv, CsvNumber(point.y), ",", CsvNumber(point.low), ",",
                      CsvNumber(point.high), "\n");
    }
  }
  return csv;
}

}  // namespace leeway
