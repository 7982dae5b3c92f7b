// The page of a report. Every text that is not ours goes through EscapeXml.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cli/page_parts.h"
#include "cli/report.h"
#include "cli/scale.h"
#include "common/plural.h"
#include "common/version.h"
#include "records/epochs.h"
#include "records/events.h"
#include "records/measured_constants.h"

namespace leeway {
namespace {

using page::Element;
using page::Figures;
using page::NumberCell;
using page::Section;
using page::Table;
using page::Text;

constexpr size_t kMostEvents = 500;

std::string Title(const RunSummary& run) {
  return run.config.name().empty() ? run.directory : run.config.name();
}

std::string StateBox(const RunSummary& run) {
  if (run.state == v1::DONE) return "";
  std::string text;
  if (!run.begun) {
    text = "This run still waits for its clients to join: nothing is measured yet.";
  } else if (run.state == v1::FAILED) {
    text = absl::StrCat("This run failed: ", run.message, ". What it measured before is below.");
  } else {
    text = absl::StrCat("This run is not finished (", StateName(run), ", ",
                        Counted(run.records.size(), "round"),
                        " so far). What it has measured is below.");
  }
  return absl::StrCat("<div class=\"card state\" role=\"alert\"><p>", Text(text), "</p></div>\n");
}

std::string Warnings(const std::vector<std::string>& warnings) {
  if (warnings.empty()) return "";
  std::string html = "<ul class=\"warnings\">\n";
  for (const std::string& warning : warnings) {
    absl::StrAppend(&html, "<li>", Text(warning), ".</li>\n");
  }
  return html + "</ul>\n";
}

std::string VerdictBox(const Report& report) {
  if (!report.verdict.ok()) {
    if (!report.run.begun) return "";
    return absl::StrCat("<div class=\"card verdict\">\n<p class=\"word\">no verdict</p>\n<p>",
                        Text(report.verdict.status().message()), ".</p></div>\n");
  }
  const Verdict& verdict = *report.verdict;
  const absl::string_view name = FindingName(verdict.finding);
  std::string beside;
  for (const TrainedModel& one : verdict.trained) {
    absl::StrAppend(&beside, "<p>", Text(one.text), "</p>\n");
  }
  if (!verdict.who_pays.empty()) {
    absl::StrAppend(&beside, "<p>", Text(verdict.who_pays), "</p>\n");
  }
  return absl::StrCat("<div class=\"card verdict ", name, "\">\n<p class=\"word\">", name,
                      "</p>\n<p class=\"sentence\">", Text(verdict.sentence), "</p>\n", beside,
                      Warnings(verdict.warnings), "</div>\n");
}

std::string Row(absl::string_view head, absl::string_view html) {
  return absl::StrCat("<tr><th scope=\"row\">", Text(head), "</th><td class=\"text\">", html,
                      "</td></tr>\n");
}

std::string OptimumRow(const RunSummary& run) {
  const v1::RoundRecord* optimum = FindOptimum(run);
  if (optimum == nullptr) return "";
  return Row("optimum w*", absl::StrCat("‖∇F‖ = ", ShortNumber(optimum->gradient_norm()), " after ",
                                        Counted(RoundsOfPhase(run, optimum->phase()), "round"),
                                        ", loss ", LossText(optimum->loss()), " ± ",
                                        ShortNumber(optimum->loss_standard_error()),
                                        " (standard error over clients)"));
}

std::string ConstantsRow(const RunSummary& run) {
  const v1::ConstantsResult* constants = FindMeasuredConstants(run);
  if (constants == nullptr) return "";
  const double condition =
      constants->largest_client_smoothness() / constants->smallest_client_convexity();
  std::string text = absl::StrCat("L = ", ShortNumber(constants->smoothness()),
                                  ", μ = ", ShortNumber(constants->convexity()));
  if (std::isfinite(constants->largest_client_smoothness())) {
    absl::StrAppend(&text, "; over clients L up to ",
                    ShortNumber(constants->largest_client_smoothness()), ", μ from ",
                    ShortNumber(constants->smallest_client_convexity()));
  }
  if (condition > 0) absl::StrAppend(&text, " (condition number ", ShortNumber(condition), ")");
  if (std::isfinite(constants->hessian_dissimilarity())) {
    absl::StrAppend(
        &text, "; Hessian dissimilarity β = ", ShortNumber(constants->hessian_dissimilarity()));
  }
  if (const double mean = constants->mean_hessian_dissimilarity(); mean > 0) {
    absl::StrAppend(&text, "; in the mean square β₂ = ", ShortNumber(mean));
  }
  return Row("constants", absl::StrCat(text, constants->exact() ? "" : "; by Lanczos iteration"));
}

std::string EvaluationRows(const RunSummary& run) {
  std::string rows;
  for (const v1::RoundRecord& round : EvaluationsOf(run)) {
    std::string text = Text(EvaluationText(round));
    for (const v1::ClientPercentile& one : round.percentiles()) {
      absl::StrAppend(&text, "<br>",
                      absl::StrFormat("%.4g %% of the clients: accuracy at most %.4g %%, ",
                                      one.percent(), 100 * one.accuracy()),
                      "test loss at most ", LossText(one.loss()));
    }
    rows += Row(absl::StrCat("evaluation, ", WhenText(run, round)), text);
  }
  return rows;
}

// Who came and went, if anybody did.
std::string EpochsRow(const RunSummary& run) {
  std::vector<std::string> lines;
  for (const EpochNames& epoch : NamesOf(run.epochs, run.roster)) {
    if (epoch.number > 1) lines.push_back(Text(EpochText(epoch)));
  }
  return lines.empty() ? "" : Row("came and went", absl::StrJoin(lines, "<br>"));
}

std::string Summary(const RunSummary& run) {
  if (!run.begun) return "";
  const v1::RunConfig& config = run.config;
  std::vector<std::string> phases;
  for (const v1::Phase& phase : config.phases()) phases.push_back(Text(PhaseText(phase)));
  double seconds = 0;
  for (const v1::RoundRecord& record : run.records) seconds += record.seconds();
  std::string rows = absl::StrCat(
      Row("status", StateName(run)), Row("run", Element("span", "hash", run.run_id)),
      Row("directory", Text(run.directory)), Row("model", Text(ModelKind(config.model()))));
  absl::StrAppend(
      &rows,
      Row("clients",
          absl::StrCat(
              run.clients, ", ",
              config.cohort().size() > 0
                  ? absl::StrCat(config.cohort().size(), " in a training round")
                  : "all in every round",
              ", ", config.weighting() == v1::EXAMPLES ? "weighted by examples" : "equal weights")),
      EpochsRow(run), Row("seed", absl::StrCat(config.seed())),
      Row("phases", absl::StrJoin(phases, "<br>")),
      Row("rounds", absl::StrFormat("%d in %.3g s", run.records.size(), seconds)));
  absl::StrAppend(&rows, OptimumRow(run), ConstantsRow(run));
  if (const std::string loss = FinalLossText(run); !loss.empty()) {
    rows += Row("training loss", absl::StrCat(loss, " (final model)"));
  }
  rows += EvaluationRows(run);
  for (const NamedModel& model : run.names) {
    rows += Row(absl::StrCat(model.name, " model"),
                absl::StrCat(Text(Store::NamedModelPath(model.name)), "<br>",
                             Element("span", "hash", absl::StrCat("sha256 ", model.sha256))));
  }
  return absl::StrCat("<div class=\"card scroll\"><table><tbody>\n", rows,
                      "</tbody></table></div>\n");
}

// Measures that have no chart of their own above.
std::string OtherMeasures(const Report& report, const std::string& files) {
  if (report.training.empty()) return Figures(report.measures, files);
  return absl::StrCat(Figures(report.measures, files),
                      "<p class=\"files\">All training rounds with all of their fields: <a href=\"",
                      Text(files), "rounds.csv\">CSV</a></p>\n");
}

std::string ReleaseTestTable(const Report& report) {
  if (!report.verdict.ok() || report.verdict->releases.empty()) return "";
  std::string rows;
  for (const ReleaseEvidence& one : report.verdict->releases) {
    const v1::ReleaseResult& result = one.result;
    const absl::string_view name = FindingName(one.finding);
    absl::StrAppend(&rows, "<tr>", Element("td", name, name),
                    Element("td", "number", absl::StrCat(result.h())),
                    NumberCell(result.difference()), NumberCell(result.interval_low()),
                    NumberCell(result.interval_high()));
    absl::StrAppend(
        &rows, NumberCell(result.difference_in_standard_errors()), NumberCell(result.efficiency()),
        NumberCell(100 * result.lost()),
        Element("td", "number", absl::StrCat(result.losers(), " of ", result.clients())),
        "</tr>\n");
  }
  const v1::ReleaseResult& last = report.verdict->releases.back().result;
  return absl::StrCat(
      Table({"verdict", "H", "difference", "95 % from", "to", "in std errors", "efficiency",
             "lost, %", "clients that lose"},
            rows, 1),
      "<p class=\"note\">Release test: the loss after ", last.rounds(),
      " rounds of H local steps of ", ShortNumber(last.step_size()),
      " less that after as many synchronised steps from the same model; lost is its share of what "
      "the model explains.</p>\n");
}

// Deciles of what clients lose, of each H that was counted.
std::string WhoPaysTable(const Report& report) {
  if (!report.verdict.ok()) return "";
  std::vector<v1::WhoPays> all;
  for (const Evidence& one : report.verdict->evidence) {
    if (one.who_pays) all.push_back(*one.who_pays);
  }
  const bool releases = all.empty();
  for (const ReleaseEvidence& one : report.verdict->releases) {
    if (releases && one.who_pays) all.push_back(*one.who_pays);
  }
  std::string rows;
  for (const v1::WhoPays& who : all) {
    const auto add = [&](absl::string_view what, const auto& deciles, uint32_t losers,
                         uint32_t clients, double unit) {
      absl::StrAppend(&rows, "<tr>", Element("td", "number", absl::StrCat(who.h())),
                      Element("td", "text", what));
      for (const double decile : deciles) rows += NumberCell(unit * decile);
      absl::StrAppend(&rows, Element("td", "number", absl::StrCat(losers, " of ", clients)),
                      "</tr>\n");
    };
    if (who.loss_deciles_size() > 0) {
      add("loss", who.loss_deciles(), who.losers(), who.clients(), 1);
    }
    if (who.accuracy_deciles_size() > 0) {
      add("accuracy, %", who.accuracy_deciles(), who.accuracy_losers(), who.test_clients(), 100);
    }
  }
  if (rows.empty()) return "";
  std::vector<std::string> heads = {"H", "change of"};
  for (int percent = 10; percent < 100; percent += 10) heads.push_back(absl::StrCat(percent, " %"));
  heads.push_back("clients that lose");
  return absl::StrCat(
      Table(heads, rows, 2),
      "<p class=\"note\">Who pays: percentiles over clients of their loss with H local steps less "
      "that ",
      releases ? "with as many synchronised steps" : "at the optimum",
      ", and of their accuracy likewise. Found by counts: no client's own figure was sent.</p>\n");
}

std::string EvidenceTable(const Report& report, const std::string& files) {
  if (!report.verdict.ok()) return "";
  if (report.verdict->evidence.empty()) return ReleaseTestTable(report);
  // Columns that would say the same in every row are left to the CSV file.
  const std::vector<Evidence>& all = report.verdict->evidence;
  const bool step_sizes = std::any_of(all.begin(), all.end(), [&](const Evidence& one) {
    return one.step_size != all.front().step_size;
  });
  const bool intervals = std::any_of(all.begin(), all.end(), [](const Evidence& one) {
    return one.interval_low < one.interval_high;
  });
  const uint32_t after = all.front().after_rounds;
  std::string rows;
  for (const Evidence& one : all) {
    const absl::string_view name = FindingName(one.finding);
    absl::StrAppend(&rows, "<tr>", Element("td", name, name),
                    Element("td", "number", absl::StrCat(one.h)),
                    step_sizes ? NumberCell(one.step_size) : "");
    absl::StrAppend(&rows, NumberCell(one.gap), NumberCell(one.lost),
                    after > 0 ? NumberCell(one.lost_after_rounds) : "",
                    NumberCell(one.gap_in_standard_errors), NumberCell(one.distance_squared),
                    NumberCell(one.floor));
    absl::StrAppend(
        &rows, NumberCell(one.unbiased_drift_squared),
        intervals ? absl::StrCat(NumberCell(one.interval_low), NumberCell(one.interval_high)) : "",
        NumberCell(one.drift_bound), "</tr>\n");
  }
  std::vector<std::string> heads = {"verdict", "H"};
  if (step_sizes) heads.push_back("step size");
  heads.insert(heads.end(), {"loss gap", "share lost"});
  if (after > 0) heads.push_back(absl::StrCat("after ", Counted(after, "round")));
  heads.insert(heads.end(), {"in std errors", "‖w_H − w*‖²", "20ρ²/μ²", "ρ²"});
  if (intervals) heads.insert(heads.end(), {"95 % from", "to"});
  heads.push_back("Jensen bound");
  return absl::StrCat(
      Table(heads, rows, 1),
      "<p class=\"note\">The verdict rests on the share lost of what the model explains, "
      "beside what the optimum owes to sampling (",
      ShortNumber(all.front().sampling_error), "); the rest is evidence beside it.",
      step_sizes ? "" : absl::StrCat(" Step size ", ShortNumber(all.front().step_size), "."),
      intervals ? "" : " All clients were measured, so ρ² has no interval.",
      "</p>\n<p class=\"files\"><a href=\"", Text(files), "verdict.csv\">CSV</a></p>\n",
      ReleaseTestTable(report));
}

// What the theory asks for and a training does not have: also where the rest of the
// bound was not measured, a step size that is too long must not go unsaid.
std::string BrokenConditions(const Report& report) {
  const v1::ConstantsResult* constants = FindConstants(report.run);
  std::string html;
  for (const TrainingCurve& curve : report.training) {
    std::vector<std::string> broken;
    if (curve.theory.ok()) {
      broken = curve.theory->broken;
    } else if (constants != nullptr) {
      const v1::RoundRecord& round = curve.rounds.front();
      broken = {StepSizeProblem(round.step_size(), std::max(1u, round.local_steps()), *constants)};
    }
    for (const std::string& reason : broken) {
      if (reason.empty()) continue;
      absl::StrAppend(
          &html,
          Element("p", "note",
                  absl::StrCat(curve.name, ": the theory's conditions do not hold: ", reason, ".")),
          "\n");
    }
  }
  return html;
}

std::string TheoryTable(const Report& report) {
  std::string rows;
  for (const TrainingCurve& curve : report.training) {
    if (!curve.theory.ok()) continue;
    const Theorem2& theorem = *curve.theory;
    const auto done = static_cast<double>(curve.rounds.back().round_in_phase()) - 1;
    absl::StrAppend(&rows, "<tr>", Element("td", "text", curve.name),
                    Element("td", "text", theorem.holds() ? "yes" : "no"),
                    NumberCell(1 - theorem.rate), NumberCell(theorem.initial));
    absl::StrAppend(&rows, NumberCell(std::pow(theorem.rate, done) * theorem.initial),
                    NumberCell(theorem.variance_term), NumberCell(theorem.bias_term),
                    NumberCell(theorem.floor));
    absl::StrAppend(&rows, NumberCell(theorem.At(done)),
                    NumberCell(curve.rounds.back().distance_squared()), "</tr>\n");
  }
  if (rows.empty()) return BrokenConditions(report);
  return absl::StrCat(
      Table({"training", "holds", "αηHμ/2", "‖w₀ − w*‖²", "1: shrunk", "2: Var", "3: ‖δ‖²",
             "4: 20ρ²/μ²", "bound", "measured"},
            rows, 2),
      "<p class=\"note\">At the model that the last recorded round started from; the bound is the "
      "sum of the terms 1 to 4, of which 2 and 3 come from stochastic steps. Holds: whether the "
      "theorem's conditions do. αηHμ/2: the part of "
      "‖w₀ − w*‖² that term 1 loses in every round.</p>\n",
      BrokenConditions(report));
}

std::string EventTable(const std::vector<const v1::Event*>& events) {
  std::string rows;
  for (size_t i = 0; i < std::min(events.size(), kMostEvents); ++i) {
    const v1::Event& event = *events[i];
    const absl::Time time =
        absl::FromUnixMillis(static_cast<int64_t>(std::clamp(event.time(), 0.0, 1e11) * 1000));
    absl::StrAppend(
        &rows, "<tr>", Element("td", "number", absl::StrCat(event.sequence())),
        Element("td", "number", absl::FormatTime("%Y-%m-%d %H:%M:%S", time, absl::UTCTimeZone())),
        Element("td", "text", EventKindName(event.kind())), Element("td", "text", event.subject()),
        Element("td", "text", event.text()));
    rows += "</tr>\n";
  }
  if (events.size() > kMostEvents) {
    absl::StrAppend(&rows, "<tr><td colspan=\"5\">", events.size() - kMostEvents,
                    " more are in run.db, table events</td></tr>\n");
  }
  return Table({"number", "time (UTC)", "what", "who", "details"}, rows, 5, "events");
}

std::string Events(const RunSummary& run) {
  std::vector<const v1::Event*> trouble, other;
  for (const v1::Event& event : run.events)
    (IsTrouble(event.kind()) ? trouble : other).push_back(&event);
  std::string html;
  if (trouble.empty()) {
    html =
        "<p>No trouble: nobody was refused, replaced or lost, and no round was tried again.</p>\n";
  } else {
    html = EventTable(trouble);
  }
  if (other.empty()) return html;
  return absl::StrCat(html, "<details><summary>", Counted(other.size(), "other event"),
                      ": processes that joined</summary>\n", EventTable(other), "</details>\n");
}

}  // namespace

std::string ReportPage(const Report& report, const std::string& files) {
  return page::Page(
      Title(report.run),
      absl::StrCat("Does heterogeneity hurt FedAvg here? A report by Leeway ", kVersion, "."),
      absl::StrCat(StateBox(report.run), VerdictBox(report)),
      absl::StrCat(Section("The run", Summary(report.run)),
                   Section("Charts", Figures(report.charts, files)),
                   Section("By number of local steps", EvidenceTable(report, files)),
                   Section("Who pays", WhoPaysTable(report)),
                   Section("Theorem 2, term by term", TheoryTable(report)),
                   Section("Other measures", OtherMeasures(report, files)),
                   Section("Events", report.run.begun ? Events(report.run) : "")));
}

}  // namespace leeway
