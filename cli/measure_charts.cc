// A chart for every measure of record.proto that has values and none of its own in
// report_charts.cc: a new measure is drawn without a change here.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/chart_data.h"
#include "cli/report.h"
#include "records/final_loss.h"
#include "records/record_fields.h"

namespace leeway {
namespace {

using Names = std::vector<std::string>;

bool IsIn(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Zero all along is what records have that were written before there was this measure.
bool HasValues(const Chart& chart) {
  return std::any_of(chart.series.begin(), chart.series.end(), [](const ChartSeries& series) {
    return std::any_of(series.points.begin(), series.points.end(),
                       [](const ChartPoint& point) { return point.y != 0; });
  });
}

Chart EmptyChart(const Measure& measure, const char* over, const char* x) {
  // A metric is "metric/NAME"; an id is also the name of a file.
  return {.id = absl::StrCat(absl::StrReplaceAll(measure.name, {{"/", "_"}}), "_over_", over),
          .title = absl::StrCat(measure.title, " over ", over),
          .description = measure.about,
          .x = {.title = x, .log = false},
          .y = {.title = measure.title, .log = false}};
}

void KeepChart(Chart chart, std::vector<Chart>& charts) {
  if (!chart.HasData() || !HasValues(chart)) return;
  chart.y.log = SpansDecades(chart);
  charts.push_back(std::move(chart));
}

Chart TrainingChart(const Report& report, const Measure& measure) {
  Chart chart = EmptyChart(measure, "rounds", "rounds of FedAvg");
  for (const TrainingCurve& curve : report.training) {
    ChartSeries series{.name = curve.name, .color = static_cast<int>(chart.series.size())};
    // What the round at the end measures beside the loss may be of other local steps.
    AddRounds(
        curve.rounds, std::nullopt,
        [&](const v1::RoundRecord& round) { return ValueOf(measure, round); }, series);
    Keep(std::move(series), chart);
  }
  return chart;
}

Chart EvaluationChart(const Report& report, const Measure& measure) {
  Chart chart = EmptyChart(measure, "evaluations", "rounds of FedAvg");
  for (const TrainingCurve& curve : report.training) {
    ChartSeries series{.name = curve.name, .color = static_cast<int>(chart.series.size())};
    for (const v1::RoundRecord& round : curve.evaluations) {
      AddPoint(static_cast<double>(TrainingOf(report.run, round)->rounds), ValueOf(measure, round),
               series);
    }
    if (series.points.size() > 1) Keep(std::move(series), chart);
  }
  return chart;
}

Chart StepsChart(const RunSummary& run, const std::vector<v1::RoundRecord>& probes,
                 const Measure& measure) {
  Chart chart = EmptyChart(measure, "steps", "local steps H");
  chart.x.log = true;
  for (const v1::RoundRecord& probe : probes) {
    ChartSeries series{.name = probes.size() == 1 ? PointName(probe.point())
                                                  : absl::StrCat(PointName(probe.point()), ", ",
                                                                 WhenText(run, probe)),
                       .color = static_cast<int>(chart.series.size())};
    for (const v1::DriftAtSteps& drift : probe.drift()) {
      AddPoint(static_cast<double>(drift.h()), ValueOf(measure, drift), series);
    }
    Keep(std::move(series), chart);
  }
  return chart;
}

}  // namespace

std::vector<Chart> MeasureCharts(const Report& report) {
  // What report_charts.cc draws; the average drift with all clients is the unbiased one.
  const Names drawn_over_rounds = {"loss", "distance_squared", "unbiased_drift_squared",
                                   "average_drift_squared", "drift_bound"};
  const Names drawn_over_steps = {
      "average_drift_squared", "unbiased_drift_squared",   "drift_bound",
      "classic_bound",         "pseudo_gradient_variance", "iterate_bias_squared"};
  // The most frequent class is the same at every model.
  const Names drawn_over_evaluations = {"accuracy", "central_accuracy", "test_loss",
                                        "majority_accuracy", "central_majority_accuracy"};
  const std::vector<v1::RoundRecord> probes = RecordsOf(report.run, v1::PROBE_ROUND);
  std::vector<Chart> charts;
  for (const Measure& metric : MetricsOf(report.run.records)) {
    KeepChart(TrainingChart(report, metric), charts);
  }
  for (const Measure& measure : Measures()) {
    if (!IsIn(drawn_over_rounds, measure.name)) {
      KeepChart(TrainingChart(report, measure), charts);
    }
    if (!measure.OfDrift() && !IsIn(drawn_over_evaluations, measure.name)) {
      KeepChart(EvaluationChart(report, measure), charts);
    }
    if (measure.OfDrift() && !IsIn(drawn_over_steps, measure.name)) {
      KeepChart(StepsChart(report.run, probes, measure), charts);
    }
  }
  return charts;
}

}  // namespace leeway
