#include "records/verdict_text.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "records/csv.h"
#include "records/json_text.h"
#include "records/record_fields.h"
#include "records/text_table.h"

namespace leeway {
namespace {

using nlohmann::ordered_json;

std::string Cell(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.4g", value) : "-";
}

std::string Share(double value) {
  if (!std::isfinite(value)) return "-";
  if (value == 0) return "0 %";
  return std::abs(value) < 1e-4 ? "<0.01 %" : absl::StrFormat("%.2f %%", 100 * value);
}

bool HasIntervals(const Verdict& verdict) {
  return std::any_of(verdict.evidence.begin(), verdict.evidence.end(),
                     [](const Evidence& one) { return one.interval_low < one.interval_high; });
}

bool HasAfterRounds(const Verdict& verdict) {
  return std::any_of(verdict.evidence.begin(), verdict.evidence.end(),
                     [](const Evidence& one) { return one.after_rounds > 0; });
}

bool HasStepSizes(const Verdict& verdict) {
  return std::any_of(verdict.evidence.begin(), verdict.evidence.end(), [&](const Evidence& one) {
    return one.step_size != verdict.evidence.front().step_size;
  });
}

// What fits into 80 columns; the report and the JSON have the rest.
std::string Table(const Verdict& verdict) {
  if (verdict.evidence.empty()) return "";
  const bool intervals = HasIntervals(verdict);
  const bool step_sizes = HasStepSizes(verdict);
  const bool after = HasAfterRounds(verdict);
  const bool errors = !intervals && !after;
  std::vector<std::string> heads = {"  H"};
  if (step_sizes) heads.push_back("step size");
  heads.insert(heads.end(), {"loss gap", "lost"});
  if (after) {
    heads.push_back(absl::StrCat("after ", verdict.evidence.front().after_rounds, " rounds"));
  }
  if (errors) heads.push_back("in std err");
  heads.insert(heads.end(), {"ρ²", intervals ? "95 % interval of ρ²" : "Jensen bound", "verdict"});
  std::vector<std::vector<std::string>> rows;
  for (const Evidence& one : verdict.evidence) {
    std::vector<std::string> row = {absl::StrCat(one.h)};
    if (step_sizes) row.push_back(Cell(one.step_size));
    row.insert(row.end(), {Cell(one.gap), Share(one.lost)});
    if (after) row.push_back(Share(one.lost_after_rounds));
    if (errors) row.push_back(Cell(one.gap_in_standard_errors));
    row.push_back(Cell(one.unbiased_drift_squared));
    row.push_back(intervals ? absl::StrCat(Cell(one.interval_low), " … ", Cell(one.interval_high))
                            : Cell(one.drift_bound));
    row.emplace_back(FindingName(one.finding));
    rows.push_back(std::move(row));
  }
  return TextTable(heads, rows);
}

ordered_json EvidenceJson(const Evidence& one) {
  ordered_json json = {{"h", one.h},
                       {"step_size", one.step_size},
                       {"gap", one.gap},
                       {"lost", one.lost},
                       {"explained", one.explained},
                       {"sampling_error", one.sampling_error},
                       {"gap_in_standard_errors", one.gap_in_standard_errors},
                       {"average_drift_squared", one.average_drift_squared},
                       {"unbiased_drift_squared", one.unbiased_drift_squared},
                       {"drift_bound", one.drift_bound},
                       {"interval_low", one.interval_low},
                       {"interval_high", one.interval_high},
                       {"floor", one.floor},
                       {"distance_squared", one.distance_squared},
                       {"pseudo_gradient_norm", one.pseudo_gradient_norm},
                       {"after_rounds", one.after_rounds},
                       {"loss_after_rounds", one.loss_after_rounds},
                       {"lost_after_rounds", one.lost_after_rounds},
                       {"who_pays", nullptr},
                       {"verdict", std::string(FindingName(one.finding))}};
  if (one.who_pays) json["who_pays"] = FieldsJson(*one.who_pays);
  return json;
}

// What stands beside the sentence: how far trainings have come, and who pays.
std::string Beside(const Verdict& verdict) {
  std::string text;
  for (const TrainedModel& one : verdict.trained) absl::StrAppend(&text, one.text, "\n");
  if (!verdict.who_pays.empty()) absl::StrAppend(&text, verdict.who_pays, "\n");
  return text;
}

}  // namespace

std::string VerdictText(const Verdict& verdict) {
  std::string text = absl::StrCat(verdict.sentence, "\n", Beside(verdict), "\n", Table(verdict),
                                  verdict.evidence.empty() || verdict.releases.empty() ? "" : "\n",
                                  ReleaseTable(verdict.releases));
  for (const std::string& warning : verdict.warnings) {
    absl::StrAppend(&text, "\nNote: ", warning, ".");
  }
  return verdict.warnings.empty() ? text : text + "\n";
}

ordered_json VerdictObject(const Verdict& verdict) {
  ordered_json evidence = ordered_json::array();
  for (const Evidence& one : verdict.evidence) evidence.push_back(EvidenceJson(one));
  ordered_json json = {{"verdict", std::string(FindingName(verdict.finding))},
                       {"largest_harmless_h", nullptr},
                       {"sentence", verdict.sentence}};
  if (verdict.largest_harmless_h.has_value()) {
    json["largest_harmless_h"] = *verdict.largest_harmless_h;
  }
  json["evidence"] = std::move(evidence);
  json["releases"] = ordered_json::array();
  for (const ReleaseEvidence& one : verdict.releases) json["releases"].push_back(ReleaseJson(one));
  json["trained"] = ordered_json::array();
  for (const TrainedModel& one : verdict.trained) json["trained"].push_back(TrainedJson(one));
  json["who_pays"] = nullptr;
  if (!verdict.who_pays.empty()) json["who_pays"] = verdict.who_pays;
  json["warnings"] = verdict.warnings;
  return json;
}

std::string VerdictJson(const Verdict& verdict) { return JsonText(VerdictObject(verdict)) + "\n"; }

std::string EvidenceCsv(const Verdict& verdict) {
  std::string csv =
      "h,step_size,gap,lost,sampling_error,gap_in_standard_errors,distance_squared,floor,"
      "average_drift_squared,unbiased_drift_squared,interval_low,interval_high,drift_bound,"
      "after_rounds,loss_after_rounds,lost_after_rounds,clients,losers,verdict\n";
  for (const Evidence& one : verdict.evidence) {
    absl::StrAppend(&csv, one.h);
    for (const double value :
         {one.step_size, one.gap, one.lost, one.sampling_error, one.gap_in_standard_errors,
          one.distance_squared, one.floor, one.average_drift_squared, one.unbiased_drift_squared,
          one.interval_low, one.interval_high, one.drift_bound}) {
      absl::StrAppend(&csv, ",", CsvNumber(value));
    }
    absl::StrAppend(&csv, ",", one.after_rounds, ",", CsvNumber(one.loss_after_rounds), ",",
                    CsvNumber(one.lost_after_rounds), ",");
    if (one.who_pays) {
      absl::StrAppend(&csv, one.who_pays->clients(), ",", one.who_pays->losers());
    } else {
      csv += ",";
    }
    absl::StrAppend(&csv, ",", FindingName(one.finding), "\n");
  }
  return csv;
}

}  // namespace leeway
