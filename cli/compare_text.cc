// What `leeway compare` prints: table and JSON.
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/compare.h"
#include "cli/estimate.h"
#include "records/json_text.h"
#include "records/text_table.h"

namespace leeway {
namespace {

using nlohmann::ordered_json;

std::string OrDash(bool known, const std::string& text) { return known ? text : "-"; }

std::string Number(double value) {
  return OrDash(std::isfinite(value), absl::StrFormat("%.3g", value));
}

std::string Percent(double share) {
  return OrDash(std::isfinite(share), absl::StrFormat("%.1f %%", 100 * share));
}

std::string VerdictName(const ComparedRun& one) {
  return one.verdict.ok() ? std::string(FindingName(one.verdict->finding)) : "-";
}

std::string Setting(const ComparedRun& one, const std::string& name) {
  const auto found = one.settings.find(name);
  return found == one.settings.end() ? "not set" : found->second;
}

ordered_json RunJson(const ComparedRun& one) {
  ordered_json json = {{"name", one.name},
                       {"directory", one.run.directory},
                       {"run_id", one.run.run_id},
                       {"status", StateName(one.run)},
                       {"model", ModelKind(one.run.config.model())},
                       {"clients", one.run.clients},
                       {"loss", one.loss},
                       {"loss_standard_error", one.loss_standard_error},
                       {"test_loss", one.test_loss},
                       {"accuracy", one.accuracy},
                       {"unbiased_drift_squared", one.drift_squared},
                       {"drift_bound", one.drift_bound},
                       {"local_steps", one.steps},
                       {"step_size", one.step_size},
                       {"rounds", one.rounds},
                       {"bytes", one.bytes},
                       {"verdict", nullptr},
                       {"largest_harmless_h", nullptr},
                       {"sentence", nullptr},
                       {"final_sha256", nullptr}};
  if (one.verdict.ok()) {
    json["verdict"] = VerdictName(one);
    json["sentence"] = one.verdict->sentence;
    if (one.verdict->largest_harmless_h) {
      json["largest_harmless_h"] = *one.verdict->largest_harmless_h;
    }
  }
  if (!one.final_sha256.empty()) json["final_sha256"] = one.final_sha256;
  json["settings"] = one.settings;
  return json;
}

}  // namespace

std::string CompareText(const Comparing& comparing) {
  std::vector<std::vector<std::string>> rows;
  std::string below;
  for (const ComparedRun& one : comparing.runs) {
    rows.push_back(
        {one.name, OrDash(std::isfinite(one.loss), LossText(one.loss)), Percent(one.accuracy),
         Number(one.drift_squared), OrDash(!one.steps.empty(), one.steps), Number(one.step_size),
         absl::StrCat(one.rounds), OrDash(one.bytes > 0, BytesText(one.bytes)), VerdictName(one)});
    absl::StrAppend(&below, "\n", one.name, ": ",
                    one.final_sha256.empty() ? "no final model"
                                             : "final model " + one.final_sha256.substr(0, 16),
                    one.verdict.ok() ? "\n  " + one.verdict->sentence : "", "\n");
  }
  std::string text =
      TextTable({"run", "loss", "accuracy", "ρ²", "H", "step", "rounds", "sent", "verdict"}, rows);
  if (!comparing.differing.empty()) {
    text += "\nSettings that differ:\n";
    for (const std::string& name : comparing.differing) {
      std::vector<std::string> values;
      for (const ComparedRun& one : comparing.runs) values.push_back(Setting(one, name));
      absl::StrAppend(&text, "  ", name, ": ", absl::StrJoin(values, " | "), "\n");
    }
  }
  text += below;
  for (const std::string& warning : comparing.warnings) {
    absl::StrAppend(&text, "\nWarning: ", warning, ".\n");
  }
  return text;
}

std::string CompareJson(const Comparing& comparing) {
  ordered_json json = {{"runs", ordered_json::array()},
                       {"differing_settings", comparing.differing},
                       {"warnings", comparing.warnings}};
  for (const ComparedRun& one : comparing.runs) json["runs"].push_back(RunJson(one));
  return JsonText(json) + "\n";
}

}  // namespace leeway
