// The charts of a report, from a run's records.
#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/chart_data.h"
#include "cli/report.h"
#include "cli/scale.h"
#include "common/plural.h"
#include "records/final_loss.h"
#include "records/record_fields.h"

namespace leeway {
namespace {

// Colours of the palette, one meaning each.
constexpr int kMeasured = 0;
constexpr int kJensen = 1;
constexpr int kClassic = 2;
constexpr int kTheory = 1;
constexpr int kVariance = 3;
constexpr int kIterateBias = 4;

std::string StepsText(uint32_t steps) { return absl::StrCat("H = ", steps); }

// Rounds of training behind an evaluated model; the axis of training rounds.
double RoundsBehind(const RunSummary& run, const v1::RoundRecord& evaluation) {
  return static_cast<double>(TrainingOf(run, evaluation)->rounds);
}

void AddDrift(const v1::RoundRecord& probe, const v1::DriftAtSteps& drift, ChartSeries& rho,
              ChartSeries& bound) {
  // What is only rounding would stretch the axis by twenty decades.
  const bool drifts = Drifts(probe, drift);
  const auto h = static_cast<double>(drift.h());
  rho.points.push_back({.x = h,
                        .y = drifts ? drift.unbiased_drift_squared() : 0,
                        .low = drifts ? drift.interval_low() : std::nan(""),
                        .high = drifts ? drift.interval_high() : std::nan("")});
  bound.points.push_back({.x = h, .y = drifts ? drift.drift_bound() : 0});
}

Chart ProbeChart(const RunSummary& run, const v1::RoundRecord& probe, size_t number) {
  Chart chart{
      .id = number == 0 ? "drift_over_steps" : absl::StrCat("drift_over_steps_", number + 1),
      .title =
          absl::StrFormat("Drift at %s over the number of local steps", PointName(probe.point())),
      .x = {.title = "local steps H", .log = true},
      .y = {.title = "squared norm", .log = true}};
  if (probe.batch_size() > 0) {
    absl::StrAppend(&chart.title, ", batches of ", probe.batch_size());
  }
  if (probe.reports() < PopulationOf(run, probe)) {
    absl::StrAppend(&chart.title, ", from ", probe.reports(), " of ", PopulationOf(run, probe),
                    " clients");
  }
  if (probe.point() == v1::Probe::CURRENT)
    absl::StrAppend(&chart.title, ", ", WhenText(run, probe));
  chart.description = absl::StrFormat(
      "What the clients' disagreement adds up to (ρ², the squared norm of the average gradient "
      "bias) beside its Jensen bound (the average of squared norms). %s, step size %s%s. "
      "The further ρ² lies below the bound, the more the clients' drifts cancel; whether that is "
      "enough, the loss gap tells.",
      Counted(probe.reports(), "client"), ShortNumber(probe.step_size()),
      probe.batch_size() > 0 ? absl::StrCat(", batches of ", probe.batch_size()) : "");
  ChartSeries rho{.name = TitleOf("unbiased_drift_squared"), .color = kMeasured};
  ChartSeries bound{.name = TitleOf("drift_bound"), .color = kJensen};
  ChartSeries classic{
      .name = TitleOf("classic_bound"), .color = kClassic, .line = ChartLine::kDashed};
  ChartSeries variance{.name = "variance", .color = kVariance};
  ChartSeries bias{.name = "iterate bias", .color = kIterateBias};
  bool rounding = false;
  for (const v1::DriftAtSteps& drift : probe.drift()) {
    const auto h = static_cast<double>(drift.h());
    AddDrift(probe, drift, rho, bound);
    rounding = rounding || !Drifts(probe, drift);
    // Before these were measured, records had zeros.
    if (drift.classic_bound() > 0) AddPoint(h, drift.classic_bound(), classic);
    if (drift.pseudo_gradient_variance() != 0) {
      AddPoint(h, drift.pseudo_gradient_variance(), variance);
      AddPoint(h, drift.iterate_bias_squared(), bias);
    }
  }
  for (ChartSeries* series : {&rho, &bound, &classic, &variance, &bias}) Keep(*series, chart);
  if (rounding) {
    chart.notes.push_back(
        "Drift that is zero up to rounding counts as zero: one full-batch step "
        "is gradient descent.");
  }
  return chart;
}

Chart GapChart(const Report& report) {
  const v1::RunConfig& config = report.run.config;
  Chart chart{.id = "gap_over_steps",
              .title = "What heterogeneity costs: what is lost where FedAvg settles",
              .description =
                  "F at FedAvg's fixed point minus F at the optimum, as a share of what the model "
                  "explains. Below the lower line it is harmless; above the upper one the clients "
                  "conflict, if it is more than chance.",
              .x = {.title = "local steps H", .log = true},
              .y = {.title = "share lost", .log = true}};
  std::map<double, ChartSeries> by_step_size;
  for (const Evidence& one : report.verdict->evidence) {
    AddPoint(one.h, one.lost, by_step_size[one.step_size]);
  }
  for (auto& [step_size, series] : by_step_size) {
    series.name =
        by_step_size.size() == 1 ? "share lost" : absl::StrCat("η = ", ShortNumber(step_size));
    series.color = static_cast<int>(chart.series.size());
    Keep(std::move(series), chart);
  }
  const double harmless = HarmlessLost(config);
  const double conflict = ConflictLost(config);
  chart.guides = {{harmless, absl::StrFormat("harmless below %g", harmless)},
                  {conflict, absl::StrFormat("conflict above %g", conflict)}};
  return chart;
}

Chart FloorChart(const Report& report) {
  Chart chart{.id = "distance_over_steps",
              .title = "How far from the optimum FedAvg settles",
              .description =
                  "The measured squared distance of FedAvg's fixed point from the optimum beside "
                  "what Theorem 2 allows at most, 20ρ²/μ².",
              .x = {.title = "local steps H", .log = true},
              .y = {.title = "squared distance from w*", .log = true}};
  ChartSeries distance{.name = "measured", .color = kMeasured};
  ChartSeries floor{.name = "20ρ²/μ²", .color = kTheory, .line = ChartLine::kThin};
  for (const Evidence& one : report.verdict->evidence) {
    // One step is gradient descent: what is left is the search's tolerance.
    if (one.h == 1) continue;
    AddPoint(one.h, one.distance_squared, distance);
    AddPoint(one.h, one.floor, floor);
  }
  Keep(std::move(distance), chart);
  Keep(std::move(floor), chart);
  return chart;
}

bool HasAny(const std::vector<v1::RoundRecord>& rounds, double (v1::RoundRecord::*value)() const) {
  return std::any_of(rounds.begin(), rounds.end(), [&](const v1::RoundRecord& round) {
    return std::isfinite((round.*value)()) && round.test_examples() > 0;
  });
}

// Where percentiles over clients were found: from the first to the last of them.
void AddSpread(const v1::RoundRecord& evaluation, ChartPoint& point) {
  if (evaluation.percentiles_size() < 2) return;
  point.low = 100 * evaluation.percentiles().begin()->accuracy();
  point.high = 100 * evaluation.percentiles().rbegin()->accuracy();
}

Chart AccuracyChart(const Report& report) {
  Chart chart{.id = "accuracy_over_rounds",
              .title = "Accuracy over training rounds",
              .description = "Test examples that are answered correctly.",
              .x = {.title = "rounds of FedAvg", .log = false},
              .y = {.title = "accuracy, %", .log = false}};
  const bool alone = report.training.size() == 1;
  const v1::RoundRecord* last = nullptr;
  for (const TrainingCurve& curve : report.training) {
    ChartSeries clients{.name = alone ? "clients' test data" : curve.name,
                        .color = static_cast<int>(chart.series.size())};
    ChartSeries central{.name = alone ? "central test set" : curve.name + ", central",
                        .color = static_cast<int>(chart.series.size()) + 1,
                        .line = ChartLine::kDashed};
    for (const v1::RoundRecord& round : curve.evaluations) {
      const double x = RoundsBehind(report.run, round);
      if (round.test_examples() > 0 && std::isfinite(round.accuracy())) {
        clients.points.push_back({.x = x, .y = 100 * round.accuracy()});
        AddSpread(round, clients.points.back());
        last = &round;
      }
      if (round.central_examples() > 0) AddPoint(x, 100 * round.central_accuracy(), central);
    }
    Keep(std::move(clients), chart);
    Keep(std::move(central), chart);
  }
  if (last == nullptr) return chart;
  if (last->majority_accuracy() > 0) {
    const double majority = 100 * last->majority_accuracy();
    chart.guides = {{majority, absl::StrCat("most frequent class: ", ShortNumber(majority), " %")}};
  }
  if (last->percentiles_size() > 1) {
    absl::StrAppendFormat(&chart.description,
                          " The bar reaches from the accuracy of the %g %% of clients with the "
                          "lowest one to that of %g %%.",
                          last->percentiles().begin()->percent(),
                          last->percentiles().rbegin()->percent());
  }
  return chart;
}

Chart LossChart(const Report& report) {
  Chart chart{
      .id = "loss_over_rounds",
      .title = "Loss over training rounds",
      .description =
          "The loss F on the clients' training data, and on test data where there are some, "
          "at the model after so many rounds.",
      .x = {.title = "rounds of FedAvg", .log = false},
      .y = {.title = "loss", .log = false}};
  const bool alone = report.training.size() == 1;
  int color = 0;
  for (const TrainingCurve& curve : report.training) {
    const bool tested = HasAny(curve.evaluations, &v1::RoundRecord::test_loss);
    ChartSeries series{.name = alone    ? "training loss"
                               : tested ? curve.name + ", training"
                                        : curve.name,
                       .color = color};
    AddRounds(
        curve.rounds, curve.end, [](const v1::RoundRecord& round) { return round.loss(); }, series);
    Keep(std::move(series), chart);
    ChartSeries test{.name = alone ? "test loss" : curve.name + ", test",
                     .color = alone ? color + 1 : color,
                     .line = ChartLine::kDashed};
    for (const v1::RoundRecord& round : curve.evaluations) {
      if (round.test_examples() == 0) continue;
      AddPoint(RoundsBehind(report.run, round), round.test_loss(), test);
    }
    Keep(std::move(test), chart);
    ++color;
  }
  chart.y.log = SpansDecades(chart);
  const v1::RoundRecord* optimum = FindOptimum(report.run);
  if (optimum != nullptr && !report.run.ModelPath("optimum").empty()) {
    chart.guides = {{optimum->loss(), absl::StrCat("F(w*) = ", ShortNumber(optimum->loss()))}};
  }
  return chart;
}

void AddTheory(const TrainingCurve& curve, const ChartSeries& measured, bool alone, Chart& chart) {
  if (!curve.theory.ok()) {
    chart.notes.push_back(absl::StrCat(curve.name, ": Theorem 2 is not drawn: ",
                                       std::string(curve.theory.status().message()), "."));
    return;
  }
  const Theorem2& theorem = *curve.theory;
  ChartSeries bound{.name = alone ? "Theorem 2" : absl::StrCat(curve.name, ", Theorem 2"),
                    .color = alone ? kTheory : measured.color,
                    .line = theorem.holds() ? ChartLine::kThin : ChartLine::kDashed,
                    .markers = false};
  for (const ChartPoint& point : measured.points) AddPoint(point.x, theorem.At(point.x), bound);
  for (const std::string& broken : theorem.broken) {
    chart.notes.push_back(absl::StrCat(
        curve.name, ": dashed, for the theorem's conditions do not hold: ", broken, "."));
  }
  for (const std::string& note : theorem.notes) {
    chart.notes.push_back(absl::StrCat(curve.name, ": ", note, "."));
  }
  Keep(std::move(bound), chart);
}

Chart DistanceChart(const Report& report) {
  Chart chart{.id = "distance_over_rounds",
              .title = "Distance from the optimum over training rounds, and Theorem 2",
              .description =
                  "The measured squared distance of the model from the optimum beside the bound of "
                  "Theorem 2, (1 − αηHμ/2)ᵗ‖w₀ − w*‖² + 20ρ²/μ² (plus the terms of stochastic "
                  "steps).",
              .x = {.title = "rounds of FedAvg t", .log = false},
              .y = {.title = "‖w_t − w*‖²", .log = true}};
  const bool alone = report.training.size() == 1;
  int color = 0;
  for (const TrainingCurve& curve : report.training) {
    ChartSeries measured{.name = alone ? "measured" : curve.name, .color = color};
    AddRounds(
        curve.rounds, curve.end,
        [](const v1::RoundRecord& round) { return round.distance_squared(); }, measured);
    if (measured.points.empty()) continue;
    ++color;
    chart.series.push_back(measured);
    AddTheory(curve, measured, alone, chart);
  }
  return chart;
}

Chart TrainingDriftChart(const Report& report) {
  Chart chart{
      .id = "drift_over_rounds",
      .title = "Drift over training rounds",
      .description =
          "The training rounds' own average drift squared, ρ², and its Jensen bound, at the "
          "model after so many rounds.",
      .x = {.title = "rounds of FedAvg", .log = false},
      .y = {.title = "squared norm", .log = true}};
  const bool alone = report.training.size() == 1;
  int color = 0;
  for (const TrainingCurve& curve : report.training) {
    ChartSeries drift{.name = alone ? TitleOf("unbiased_drift_squared") : curve.name,
                      .color = color};
    ChartSeries bound{.name = alone ? TitleOf("drift_bound") : absl::StrCat(curve.name, ", bound"),
                      .color = alone ? kJensen : color,
                      .line = alone ? ChartLine::kSolid : ChartLine::kDotted,
                      .markers = alone};
    for (const v1::RoundRecord& round : curve.rounds) {
      if (round.drift_size() == 0) continue;
      AddPoint(RoundsDone(round), round.drift(0).unbiased_drift_squared(), drift);
      AddPoint(RoundsDone(round), round.drift(0).drift_bound(), bound);
    }
    if (!drift.points.empty()) ++color;
    Keep(std::move(drift), chart);
    Keep(std::move(bound), chart);
  }
  return chart;
}

// Only where a training chooses it round by round: else the name says it.
Chart StepsChart(const Report& report) {
  Chart chart{.id = "steps_over_rounds",
              .title = "Local steps over training rounds",
              .description = "The number of local steps H that each round took.",
              .x = {.title = "rounds of FedAvg", .log = false},
              .y = {.title = "local steps H", .log = true}};
  for (const TrainingCurve& curve : report.training) {
    const uint32_t first = curve.rounds.front().local_steps();
    if (std::all_of(curve.rounds.begin(), curve.rounds.end(),
                    [&](const v1::RoundRecord& one) { return one.local_steps() == first; })) {
      continue;
    }
    ChartSeries series{.name = curve.name, .color = static_cast<int>(chart.series.size())};
    for (const v1::RoundRecord& one : curve.rounds) {
      AddPoint(RoundsDone(one), one.local_steps(), series);
    }
    Keep(std::move(series), chart);
  }
  return chart;
}

bool ChoosesSteps(const RunSummary& run, const v1::RoundRecord& round) {
  const auto phase = static_cast<int>(round.phase());
  return phase < run.config.phases_size() &&
         run.config.phases(phase).train().local().has_auto_steps();
}

std::string CurveName(const RunSummary& run, const v1::RoundRecord& round) {
  const std::string batches =
      round.batch_size() > 0 ? absl::StrCat(", batches of ", round.batch_size()) : "";
  if (ChoosesSteps(run, round)) return absl::StrCat("H chosen by round", batches);
  if (round.local_steps() > 0) return absl::StrCat(StepsText(round.local_steps()), batches);
  if (static_cast<int>(round.phase()) >= run.config.phases_size()) return "training";
  const uint32_t epochs =
      run.config.phases(static_cast<int>(round.phase())).train().local().epochs();
  return absl::StrCat(epochs, epochs == 1 ? " epoch" : " epochs", batches);
}

// Adds to names that occur twice what tells them apart.
template <typename Suffix>
void TellApart(std::vector<TrainingCurve>& curves, const Suffix& suffix) {
  std::map<std::string, int> count;
  for (const TrainingCurve& curve : curves) ++count[curve.name];
  for (TrainingCurve& curve : curves) {
    if (count[curve.name] > 1) absl::StrAppend(&curve.name, ", ", suffix(curve.rounds.front()));
  }
}

// No two charts share a title: those of the same kind are numbered.
void TellTitlesApart(std::vector<Chart>& charts) {
  std::map<std::string, int> count, seen;
  for (const Chart& chart : charts) ++count[chart.title];
  for (Chart& chart : charts) {
    const std::string title = chart.title;
    if (count[title] > 1) absl::StrAppend(&chart.title, " (", ++seen[title], ")");
  }
}

}  // namespace

std::vector<TrainingCurve> TrainingCurves(const RunSummary& run) {
  std::map<uint32_t, std::vector<v1::RoundRecord>> phases;
  for (const v1::RoundRecord& record : RecordsOf(run, v1::TRAIN_ROUND)) {
    phases[record.phase()].push_back(record);
  }
  std::vector<TrainingCurve> curves;
  for (auto& [phase, rounds] : phases) {
    TrainingCurve curve;
    curve.name = CurveName(run, rounds.front());
    curve.theory = TheoryOf(run, rounds);
    curve.rounds = std::move(rounds);
    if (const v1::RoundRecord* end = LossAfterTraining(run, phase)) curve.end = *end;
    for (const v1::RoundRecord& round : EvaluationsOf(run)) {
      const std::optional<Training> training = TrainingOf(run, round);
      if (training && training->phase == phase) curve.evaluations.push_back(round);
    }
    curves.push_back(std::move(curve));
  }
  TellApart(curves, [](const v1::RoundRecord& round) {
    return absl::StrCat("η = ", ShortNumber(round.step_size()));
  });
  TellApart(curves,
            [](const v1::RoundRecord& round) { return absl::StrCat("phase ", round.phase() + 1); });
  return curves;
}

std::vector<Chart> ReportCharts(const Report& report) {
  std::vector<Chart> all;
  if (report.verdict.ok()) {
    all.push_back(GapChart(report));
    all.push_back(FloorChart(report));
  }
  const std::vector<v1::RoundRecord> probes = RecordsOf(report.run, v1::PROBE_ROUND);
  for (size_t i = 0; i < probes.size(); ++i) all.push_back(ProbeChart(report.run, probes[i], i));
  all.push_back(LossChart(report));
  all.push_back(AccuracyChart(report));
  all.push_back(DistanceChart(report));
  all.push_back(TrainingDriftChart(report));
  all.push_back(StepsChart(report));
  all.erase(
      std::remove_if(all.begin(), all.end(), [](const Chart& chart) { return !chart.HasData(); }),
      all.end());
  TellTitlesApart(all);
  return all;
}

}  // namespace leeway
