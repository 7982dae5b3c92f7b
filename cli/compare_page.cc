// The charts and the page of `leeway compare`.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/chart_data.h"
#include "cli/compare.h"
#include "cli/estimate.h"
#include "cli/page_parts.h"
#include "cli/scale.h"
#include "common/version.h"
#include "records/final_loss.h"

namespace leeway {
namespace {

using page::Element;
using page::NumberCell;
using page::Text;

// After the last colour they start again, with another line.
ChartSeries SeriesOf(const std::string& name, size_t index) {
  return {.name = name,
          .color = static_cast<int>(index),
          .line = index < kChartColors ? ChartLine::kSolid : ChartLine::kDashed};
}

// A series for each training phase of each run, all of a run in its colour.
template <typename AddPoints>
void AddCurves(const Comparing& comparing, const AddPoints& add_points, Chart& chart) {
  for (size_t i = 0; i < comparing.runs.size(); ++i) {
    const ComparedRun& one = comparing.runs[i];
    for (const TrainingCurve& curve : one.training) {
      const bool alone = one.training.size() == 1;
      ChartSeries series = SeriesOf(alone ? one.name : absl::StrCat(one.name, ", ", curve.name), i);
      add_points(one, curve, series);
      Keep(std::move(series), chart);
    }
  }
}

Chart LossChart(const Comparing& comparing) {
  Chart chart{.id = "loss_over_rounds",
              .title = "Training loss over rounds",
              .description =
                  "The loss F on the clients' training data at the model after so many "
                  "rounds.",
              .x = {.title = "rounds", .log = false},
              .y = {.title = "loss", .log = false}};
  const auto loss = [](const v1::RoundRecord& round) { return round.loss(); };
  AddCurves(
      comparing,
      [&](const ComparedRun&, const TrainingCurve& curve, ChartSeries& series) {
        AddRounds(curve.rounds, curve.end, loss, series);
      },
      chart);
  chart.y.log = SpansDecades(chart);
  return chart;
}

Chart BytesChart(const Comparing& comparing) {
  Chart chart{.id = "loss_over_bytes",
              .title = "Training loss over what was sent",
              .description =
                  "The same losses over the bytes of models and reports until then, as "
                  "between the server and one client each.",
              .x = {.title = "megabytes sent", .log = false},
              .y = {.title = "loss", .log = false}};
  AddCurves(
      comparing,
      [](const ComparedRun& one, const TrainingCurve& curve, ChartSeries& series) {
        double sent = 0;
        if (one.parameters == 0) return;
        for (const v1::RoundRecord& round : curve.rounds) {
          AddPoint(sent / 1e6, round.loss(), series);
          sent += static_cast<double>(one.BytesOf(round));
        }
        if (curve.end) AddPoint(sent / 1e6, curve.end->loss(), series);
      },
      chart);
  chart.y.log = SpansDecades(chart);
  return chart;
}

Chart AccuracyChart(const Comparing& comparing) {
  Chart chart{.id = "accuracy_over_rounds",
              .title = "Accuracy over rounds",
              .description =
                  "Test examples that are answered correctly: the clients' own, or the "
                  "central test set's where only that has any.",
              .x = {.title = "rounds", .log = false},
              .y = {.title = "accuracy, %", .log = false}};
  AddCurves(
      comparing,
      [](const ComparedRun& one, const TrainingCurve& curve, ChartSeries& series) {
        for (const v1::RoundRecord& round : curve.evaluations) {
          const bool central = round.test_examples() == 0 && round.central_examples() > 0;
          const double accuracy = central ? round.central_accuracy() : round.accuracy();
          if (const auto training = TrainingOf(one.run, round)) {
            AddPoint(static_cast<double>(training->rounds), 100 * accuracy, series);
          }
        }
      },
      chart);
  return chart;
}

Chart DriftChart(const Comparing& comparing) {
  Chart chart{.id = "drift_over_rounds",
              .title = "Drift ρ² over rounds",
              .description = "The average drift squared of the training rounds' own local steps.",
              .x = {.title = "rounds", .log = false},
              .y = {.title = "ρ²", .log = true}};
  AddCurves(
      comparing,
      [](const ComparedRun&, const TrainingCurve& curve, ChartSeries& series) {
        for (const v1::RoundRecord& round : curve.rounds) {
          if (round.drift_size() == 0) continue;
          AddPoint(RoundsDone(round), round.drift(0).unbiased_drift_squared(), series);
        }
      },
      chart);
  return chart;
}

// Only where some run changes it: else the table says it.
Chart StepsChart(const Comparing& comparing) {
  Chart chart{.id = "steps_over_rounds",
              .title = "Local steps over rounds",
              .description = "The number of local steps H that each round took.",
              .x = {.title = "rounds", .log = false},
              .y = {.title = "local steps H", .log = true}};
  bool changes = false;
  AddCurves(
      comparing,
      [&](const ComparedRun&, const TrainingCurve& curve, ChartSeries& series) {
        for (const v1::RoundRecord& round : curve.rounds) {
          if (round.local_steps() == 0) continue;
          AddPoint(RoundsDone(round), round.local_steps(), series);
          changes = changes || round.local_steps() != curve.rounds.front().local_steps();
        }
      },
      chart);
  if (!changes) chart.series.clear();
  return chart;
}

Chart LostChart(const Comparing& comparing) {
  Chart chart{.id = "lost_over_steps",
              .title = "What heterogeneity costs by number of local steps",
              .description =
                  "The share lost of what the model explains: where FedAvg settles or, "
                  "without fixed points, in the release test.",
              .x = {.title = "local steps H", .log = true},
              .y = {.title = "share lost", .log = true}};
  for (size_t i = 0; i < comparing.runs.size(); ++i) {
    const ComparedRun& one = comparing.runs[i];
    if (!one.verdict.ok()) continue;
    ChartSeries series = SeriesOf(one.name, i);
    for (const Evidence& evidence : one.verdict->evidence) {
      AddPoint(evidence.h, evidence.lost, series);
    }
    if (one.verdict->evidence.empty()) {
      for (const ReleaseEvidence& release : one.verdict->releases) {
        AddPoint(release.result.h(), release.result.lost(), series);
      }
    }
    Keep(std::move(series), chart);
  }
  const v1::RunConfig& config = comparing.runs.front().run.config;
  chart.guides = {
      {HarmlessLost(config), absl::StrFormat("harmless below %g", HarmlessLost(config))},
      {ConflictLost(config), absl::StrFormat("conflict above %g", ConflictLost(config))}};
  return chart;
}

std::string RunsTable(const Comparing& comparing) {
  std::string rows;
  for (const ComparedRun& one : comparing.runs) {
    const std::string verdict =
        one.verdict.ok() ? std::string(FindingName(one.verdict->finding)) : "-";
    absl::StrAppend(&rows, "<tr>", Element("td", "", one.name), Element("td", verdict, verdict),
                    Element("td", "number", std::isfinite(one.loss) ? LossText(one.loss) : "-"),
                    NumberCell(100 * one.accuracy));
    absl::StrAppend(&rows, NumberCell(one.drift_squared),
                    Element("td", "number", one.steps.empty() ? "-" : one.steps),
                    NumberCell(one.step_size));
    absl::StrAppend(&rows, Element("td", "number", absl::StrCat(one.rounds)),
                    Element("td", "number", one.bytes > 0 ? BytesText(one.bytes) : "-"),
                    Element("td", "hash", one.final_sha256.substr(0, 8)), "</tr>\n");
  }
  return page::Table({"run", "verdict", "loss", "accuracy, %", "ρ²", "H", "step size", "rounds",
                      "sent", "final model"},
                     rows, 2);
}

std::string SettingsTable(const Comparing& comparing) {
  if (comparing.differing.empty()) return "<p>None: the configs are the same.</p>\n";
  std::vector<std::string> heads = {"setting"};
  for (const ComparedRun& one : comparing.runs) heads.push_back(one.name);
  std::string rows;
  for (const std::string& name : comparing.differing) {
    absl::StrAppend(&rows, "<tr><th scope=\"row\">", Text(name), "</th>");
    for (const ComparedRun& one : comparing.runs) {
      const auto found = one.settings.find(name);
      rows += Element("td", "text", found == one.settings.end() ? "not set" : found->second);
    }
    rows += "</tr>\n";
  }
  return page::Table(heads, rows, heads.size());
}

std::string VerdictsTable(const Comparing& comparing) {
  std::string rows;
  for (const ComparedRun& one : comparing.runs) {
    if (!one.verdict.ok()) continue;
    const absl::string_view name = FindingName(one.verdict->finding);
    absl::StrAppend(&rows, "<tr>", Element("td", "text", one.name), Element("td", name, name),
                    Element("td", "text", one.verdict->sentence), "</tr>\n");
  }
  return rows.empty() ? "" : page::Table({"run", "verdict", "why"}, rows, 3);
}

}  // namespace

std::vector<Chart> CompareCharts(const Comparing& comparing) {
  std::vector<Chart> charts = {LossChart(comparing),  AccuracyChart(comparing),
                               BytesChart(comparing), DriftChart(comparing),
                               StepsChart(comparing), LostChart(comparing)};
  charts.erase(std::remove_if(charts.begin(), charts.end(),
                              [](const Chart& chart) { return !chart.HasData(); }),
               charts.end());
  return charts;
}

std::string ComparePage(const Comparing& comparing, const std::vector<Chart>& charts,
                        const std::string& files) {
  std::string warnings;
  for (const std::string& warning : comparing.warnings) {
    absl::StrAppend(&warnings, "<div class=\"card state\" role=\"alert\"><p>", Text(warning),
                    ".</p></div>\n");
  }
  return page::Page(absl::StrCat(comparing.runs.size(), " runs compared"),
                    absl::StrCat("By Leeway ", kVersion, "."), warnings,
                    absl::StrCat(page::Section("The runs", RunsTable(comparing)),
                                 page::Section("Charts", page::Figures(charts, files)),
                                 page::Section("Settings that differ", SettingsTable(comparing)),
                                 page::Section("Verdicts", VerdictsTable(comparing))));
}

}  // namespace leeway
