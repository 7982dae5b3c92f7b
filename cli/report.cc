#include "cli/report.h"

#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/run.h"
#include "common/durable_file.h"
#include "common/status.h"
#include "records/record_fields.h"
#include "records/verdict_text.h"

namespace leeway {
namespace {

namespace fs = std::filesystem;

struct Places {
  fs::path page;
  fs::path files;      // folder of charts and CSV files
  std::string prefix;  // from the page to them, with a slash; empty if beside it
};

absl::StatusOr<Places> ChoosePlaces(const ReportOptions& options) {
  if (options.out.empty()) {
    const fs::path folder = fs::path(options.directory) / "report";
    return Places{.page = folder / "report.html", .files = folder, .prefix = ""};
  }
  const fs::path page = options.out;
  if (!absl::EndsWithIgnoreCase(options.out, ".html")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--out is ", options.out, "; name the page to write, such as report.html"));
  }
  const std::string name = absl::StrCat(page.stem().string(), "_files");
  return Places{.page = page, .files = page.parent_path() / name, .prefix = name + "/"};
}

absl::Status MakeFolder(const fs::path& folder) {
  std::error_code error;
  if (!folder.empty()) fs::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make ", folder.string()));
}

absl::Status WriteText(const fs::path& path, const std::string& text) {
  return WriteFile(path.string(), text, /*sync=*/false);
}

absl::Status WriteFiles(const Report& report, const fs::path& folder) {
  for (const std::vector<Chart>* charts : {&report.charts, &report.measures}) {
    for (const Chart& chart : *charts) {
      LEEWAY_RETURN_IF_ERROR(
          WriteText(folder / (chart.id + ".svg"), ChartSvg(chart, SvgUse::kFile)));
      LEEWAY_RETURN_IF_ERROR(WriteText(folder / (chart.id + ".csv"), ChartCsv(chart)));
    }
  }
  if (!report.training.empty()) {
    LEEWAY_RETURN_IF_ERROR(
        WriteText(folder / "rounds.csv", RoundsCsv(RecordsOf(report.run, v1::TRAIN_ROUND))));
  }
  if (!report.verdict.ok()) return absl::OkStatus();
  return WriteText(folder / "verdict.csv", EvidenceCsv(*report.verdict));
}

}  // namespace

Report MakeReport(RunSummary run) {
  Report report;
  report.run = std::move(run);
  report.verdict = Judge(report.run);
  report.training = TrainingCurves(report.run);
  report.charts = ReportCharts(report);
  report.measures = MeasureCharts(report);
  return report;
}

absl::StatusOr<std::string> WriteReport(const ReportOptions& options) {
  LEEWAY_ASSIGN_OR_RETURN(const Places places, ChoosePlaces(options));
  LEEWAY_ASSIGN_OR_RETURN(RunSummary run, LoadRun(options.directory));
  const Report report = MakeReport(std::move(run));
  LEEWAY_RETURN_IF_ERROR(MakeFolder(places.page.parent_path()));
  LEEWAY_RETURN_IF_ERROR(MakeFolder(places.files));
  LEEWAY_RETURN_IF_ERROR(WriteFiles(report, places.files));
  LEEWAY_RETURN_IF_ERROR(WriteText(places.page, ReportPage(report, places.prefix)));
  return places.page.string();
}

int ReportCommand(const ReportOptions& options) {
  const absl::StatusOr<std::string> page = WriteReport(options);
  if (!page.ok()) {
    absl::FPrintF(stderr, "leeway: %s\n", page.status().message());
    const bool usage = absl::IsNotFound(page.status()) || absl::IsInvalidArgument(page.status());
    return usage ? kExitUsage : kExitFailed;
  }
  absl::PrintF("%s\n", *page);
  return std::fflush(stdout) == 0 ? kExitOk : kExitFailed;
}

}  // namespace leeway
