// `leeway report`: a run as one page that needs nothing else (charts, tables, the
// verdict), beside it every chart as SVG, every series as CSV and all training rounds
// as one CSV.
#ifndef LEEWAY_CLI_REPORT_H_
#define LEEWAY_CLI_REPORT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/chart.h"
#include "records/show.h"
#include "records/theory.h"
#include "records/verdict.h"

namespace leeway {

// The rounds of one training phase, and the theory for it.
struct TrainingCurve {
  std::string name;  // "H = 10", with what tells it from the run's other phases
  std::vector<v1::RoundRecord> rounds;
  std::optional<v1::RoundRecord> end;        // measured the loss of the model at its end
  std::vector<v1::RoundRecord> evaluations;  // of its models, by rounds done before
  absl::StatusOr<Theorem2> theory = absl::UnknownError("");
};

// All that the page shows.
struct Report {
  RunSummary run;
  absl::StatusOr<Verdict> verdict = absl::UnknownError("");
  std::vector<TrainingCurve> training;
  std::vector<Chart> charts;    // only those with data
  std::vector<Chart> measures;  // one for every other measure that has values
};

Report MakeReport(RunSummary run);

// The training phases of a run that have begun.
std::vector<TrainingCurve> TrainingCurves(const RunSummary& run);
// The charts that the run has data for. Needs run, verdict and training.
std::vector<Chart> ReportCharts(const Report& report);
// A chart for each measure of the records that those leave out. Needs run and training.
std::vector<Chart> MeasureCharts(const Report& report);
// The page; `files` is the path from it to the folder of charts and CSV files,
// empty if they are beside it.
std::string ReportPage(const Report& report, const std::string& files);

struct ReportOptions {
  std::string directory;  // of the run
  // The page. Empty: report/report.html in the run's directory, with the other
  // files beside it; else they go to PAGE_files, for a page PAGE.html.
  std::string out;
};

// Writes the page and the files; each is there in full or not at all. Returns the
// page's path.
absl::StatusOr<std::string> WriteReport(const ReportOptions& options);

// Prints where the report is. Returns the exit code.
int ReportCommand(const ReportOptions& options);

}  // namespace leeway

#endif  // LEEWAY_CLI_REPORT_H_
