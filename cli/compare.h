// `leeway compare`: several runs in one table and on one chart each for loss, accuracy, drift and
// local steps. Reads records only: nothing is run.
#ifndef LEEWAY_CLI_COMPARE_H_
#define LEEWAY_CLI_COMPARE_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/chart.h"
#include "cli/report.h"
#include "records/show.h"
#include "records/verdict.h"

namespace leeway {

// One of the runs. NaN: not measured.
struct ComparedRun {
  static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

  std::string name;  // the shortest ending of its directory that no other run has
  RunSummary run;
  absl::StatusOr<Verdict> verdict = absl::UnknownError("");
  std::vector<TrainingCurve> training;
  // Of the final model or, while the run is under way, the last that was measured.
  double loss = kNaN;
  double loss_standard_error = kNaN;
  double test_loss = kNaN;
  double accuracy = kNaN;  // on the clients' test parts, else on the central test set
  // Of the last training round that measured it.
  double drift_squared = kNaN;
  double drift_bound = kNaN;
  double step_size = kNaN;  // of the last training phase
  std::string steps;        // "10", "64 to 1" (auto_steps), "1 epoch"; empty without training
  uint64_t rounds = 0;      // of training, all phases
  uint64_t bytes = 0;       // of models and reports in them, as between one client each
  std::string final_sha256;
  std::map<std::string, std::string> settings;  // of the config: "train.local.steps" and its value

  // Bytes of one round of a training phase and one client.
  uint64_t BytesOf(const v1::RoundRecord& round) const;
  uint64_t parameters = 0;
  bool float64 = true;
};

struct Comparing {
  std::vector<ComparedRun> runs;
  std::vector<std::string> warnings;   // why figures of two runs may not be compared
  std::vector<std::string> differing;  // names of settings that not all runs share
};

// InvalidArgument for a run given twice or alone; NotFound names the run and the remedy.
absl::StatusOr<Comparing> LoadComparing(const std::vector<std::string>& directories);
// The same of runs that are in memory.
Comparing Compare(std::vector<RunSummary> runs);

// What tells each directory from the others, by as few of its last parts as needed.
std::vector<std::string> ShortNames(const std::vector<std::string>& directories);

// A table for a terminal, what differs, the warnings.
std::string CompareText(const Comparing& comparing);
std::string CompareJson(const Comparing& comparing);
// Those with data.
std::vector<Chart> CompareCharts(const Comparing& comparing);
// The page; `files` as for ReportPage.
std::string ComparePage(const Comparing& comparing, const std::vector<Chart>& charts,
                        const std::string& files);

// Adds the command; it sets *exit_code, which must live until `app` has been parsed.
CLI::App* AddCompareCommand(CLI::App& app, int* exit_code);

}  // namespace leeway

#endif  // LEEWAY_CLI_COMPARE_H_
