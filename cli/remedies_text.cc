// What `leeway remedies` prints: table, sentence and JSON.
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/estimate.h"
#include "cli/remedies.h"
#include "cli/remedy_configs.h"
#include "records/json_text.h"

namespace leeway {
namespace {

using nlohmann::ordered_json;

constexpr double kStandardErrors = 2;
constexpr double kSmallGain = 0.01;  // of FedAvg's loss

std::string Cell(double value, const char* unit = "") {
  if (!std::isfinite(value)) return "-";
  return *unit == '%' ? absl::StrFormat("%.1f %%", 100 * value) : absl::StrFormat("%.5g", value);
}

bool Better(const RemedyOutcome& one) {
  if (!one.failure.empty() || !one.against_fedavg) return false;
  const v1::Comparison& paired = *one.against_fedavg;
  const double error = std::isnan(paired.standard_error()) ? 0 : paired.standard_error();
  return paired.winners() > paired.losers() && paired.difference() < -kStandardErrors * error;
}

ordered_json OutcomeJson(const RemedyOutcome& one) {
  ordered_json json = {{"name", one.name},
                       {"loss", one.loss},
                       {"test_loss", one.test_loss},
                       {"accuracy", one.accuracy},
                       {"worst_decile_accuracy", one.worst_accuracy},
                       {"rounds", one.rounds},
                       {"bytes", one.bytes},
                       {"against_fedavg", nullptr},
                       {"failure", nullptr}};
  if (one.against_fedavg) {
    const v1::Comparison& paired = *one.against_fedavg;
    json["against_fedavg"] = {{"clients", paired.clients()},
                              {"winners", paired.winners()},
                              {"losers", paired.losers()},
                              {"difference", paired.difference()},
                              {"standard_error", paired.standard_error()}};
  }
  if (!one.failure.empty()) json["failure"] = one.failure;
  return json;
}

}  // namespace

const RemedyOutcome* Recommended(const std::vector<RemedyOutcome>& outcomes) {
  const RemedyOutcome* best = nullptr;
  for (const RemedyOutcome& one : outcomes) {
    if (!Better(one)) continue;
    if (best == nullptr || one.against_fedavg->difference() < best->against_fedavg->difference()) {
      best = &one;
    }
  }
  return best;
}

const RemedyOutcome* LowersTheMean(const std::vector<RemedyOutcome>& outcomes) {
  if (outcomes.empty() || Recommended(outcomes) != nullptr) return nullptr;
  const RemedyOutcome* best = nullptr;
  // Of the loss that clients compare: on test parts, else on training parts.
  const auto loss = [](const RemedyOutcome& one) {
    return std::isfinite(one.test_loss) ? one.test_loss : one.loss;
  };
  for (const RemedyOutcome& one : outcomes) {
    if (!one.failure.empty() || !one.against_fedavg) continue;
    const double gain = -one.against_fedavg->difference();
    if (!(gain > kSmallGain * std::abs(loss(outcomes.front())))) continue;
    if (best == nullptr || gain > -best->against_fedavg->difference()) best = &one;
  }
  return best;
}

namespace {

// The mean falls, and yet it is no plain gain: which counts is not ours to say.
std::string MeanSentence(const RemedyOutcome& one) {
  const v1::Comparison& paired = *one.against_fedavg;
  const std::string gain =
      absl::StrFormat("%s lowers the mean loss over clients by %.3g ± %.2g",
                      FindRemedy(one.name)->what, -paired.difference(), paired.standard_error());
  if (paired.winners() > paired.losers()) {
    return absl::StrFormat(
        "%s, and %d of %d clients gain, but with other clients like these that may be chance.",
        gain, paired.winners(), paired.clients());
  }
  return absl::StrFormat(
      "%s, but %d of %d clients lose by it: use it if the mean counts, and stay with FedAvg if "
      "most clients are to gain.",
      gain, paired.losers(), paired.clients());
}

}  // namespace

std::string RemedySentence(const std::vector<RemedyOutcome>& outcomes) {
  const RemedyOutcome* best = Recommended(outcomes);
  if (const RemedyOutcome* mean = LowersTheMean(outcomes)) return MeanSentence(*mean);
  if (best == nullptr) {
    return "Stay with FedAvg: as configured here, none of these lowers the mean loss over clients "
           "by more than 1 %, nor that of most clients by more than chance.";
  }
  const v1::Comparison& paired = *best->against_fedavg;
  return absl::StrFormat(
      "Use %s: %d of %d clients are better off than with FedAvg, and their mean loss is lower by "
      "%.3g ± %.2g.",
      FindRemedy(best->name)->what, paired.winners(), paired.clients(), -paired.difference(),
      paired.standard_error());
}

std::string RemedyText(const std::vector<RemedyOutcome>& outcomes) {
  std::string text =
      absl::StrFormat("%-14s %10s %9s %8s %9s %9s %6s %8s\n", "", "train loss", "test loss",
                      "accuracy", "worst 10%", "gain/lose", "rounds", "sent");
  for (const RemedyOutcome& one : outcomes) {
    if (!one.failure.empty()) {
      absl::StrAppendFormat(&text, "%-14s failed: %s\n", one.name, one.failure);
      continue;
    }
    const std::string paired = one.against_fedavg ? absl::StrCat(one.against_fedavg->winners(), "/",
                                                                 one.against_fedavg->losers())
                                                  : "-";
    absl::StrAppendFormat(&text, "%-14s %10s %9s %8s %9s %9s %6d %8s\n", one.name, Cell(one.loss),
                          Cell(one.test_loss), Cell(one.accuracy, "%"),
                          Cell(one.worst_accuracy, "%"), paired, one.rounds, BytesText(one.bytes));
  }
  return absl::StrCat(text, "\n", RemedySentence(outcomes), "\n");
}

std::string RemedyJson(const std::vector<RemedyOutcome>& outcomes) {
  ordered_json json = {{"sentence", RemedySentence(outcomes)}, {"recommended", nullptr}};
  if (const RemedyOutcome* best = Recommended(outcomes)) json["recommended"] = best->name;
  json["lowers_the_mean"] = nullptr;
  if (const RemedyOutcome* one = LowersTheMean(outcomes)) json["lowers_the_mean"] = one->name;
  json["tried"] = ordered_json::array();
  for (const RemedyOutcome& one : outcomes) json["tried"].push_back(OutcomeJson(one));
  return JsonText(json) + "\n";
}

}  // namespace leeway
