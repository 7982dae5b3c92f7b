#include "cli/report.h"

#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/str_format.h"
#include "cli/page_parts.h"
#include "cli/run.h"
#include "common/status.h"
#include "records/record_fields.h"
#include "records/verdict_text.h"

namespace leeway {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<page::Places> ChoosePlaces(const ReportOptions& options) {
  if (!options.out.empty()) return page::PlacesOf(options.out);
  const fs::path folder = fs::path(options.directory) / "report";
  return page::Places{.page = folder / "report.html", .files = folder, .prefix = ""};
}

page::FileTexts FilesOf(const Report& report) {
  page::FileTexts files = page::ChartFiles(report.charts);
  for (auto& file : page::ChartFiles(report.measures)) files.push_back(std::move(file));
  if (!report.training.empty()) {
    files.emplace_back("rounds.csv", RoundsCsv(RecordsOf(report.run, v1::TRAIN_ROUND)));
  }
  if (report.verdict.ok()) files.emplace_back("verdict.csv", EvidenceCsv(*report.verdict));
  return files;
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
  LEEWAY_ASSIGN_OR_RETURN(const page::Places places, ChoosePlaces(options));
  LEEWAY_ASSIGN_OR_RETURN(RunSummary run, LoadRun(options.directory));
  const Report report = MakeReport(std::move(run));
  LEEWAY_RETURN_IF_ERROR(
      page::WritePage(places, FilesOf(report), ReportPage(report, places.prefix)));
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
