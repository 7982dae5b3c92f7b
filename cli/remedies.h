// `leeway remedies`: tries on a finished run's data what may serve its clients better than FedAvg,
// and compares the results. Each try is a run of its own, with the same processes as `leeway run`.
#ifndef LEEWAY_CLI_REMEDIES_H_
#define LEEWAY_CLI_REMEDIES_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "proto/record.pb.h"

namespace leeway {

// What one of them has come to.
struct RemedyOutcome {
  static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

  std::string name;
  std::string failure;  // why its run failed; empty: it is done
  double loss = kNaN;   // training loss of the final model, over all clients
  double test_loss = kNaN;
  double accuracy = kNaN;        // over all test examples
  double worst_accuracy = kNaN;  // which the worst tenth of clients do not exceed
  uint64_t rounds = 0;           // of training
  uint64_t bytes = 0;            // of models and reports in them, as between one client each
  std::optional<v1::Comparison> against_fedavg;
};

// The one to recommend: of those that most clients gain by, and whose mean gain is more than twice
// its standard error, the one with the largest. Null if there is none.
const RemedyOutcome* Recommended(const std::vector<RemedyOutcome>& outcomes);
// Where there is none: the one that lowers the mean loss most, by more than 1 % of FedAvg's, though
// most clients do not gain by it, or not by more than chance. Null if FedAvg is as good.
const RemedyOutcome* LowersTheMean(const std::vector<RemedyOutcome>& outcomes);
// One sentence.
std::string RemedySentence(const std::vector<RemedyOutcome>& outcomes);
// The table and the sentence.
std::string RemedyText(const std::vector<RemedyOutcome>& outcomes);
std::string RemedyJson(const std::vector<RemedyOutcome>& outcomes);

// Adds the command; it sets *exit_code, which must live until `app` has been parsed.
CLI::App* AddRemediesCommand(CLI::App& app, int* exit_code);

}  // namespace leeway

#endif  // LEEWAY_CLI_REMEDIES_H_
