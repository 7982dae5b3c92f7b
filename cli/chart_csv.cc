#include "absl/strings/str_cat.h"
#include "cli/chart.h"
#include "records/csv.h"

namespace leeway {

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
