#include "records/show.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/status.h"
#include "records/epochs.h"
#include "records/events.h"
#include "records/verdict_text.h"

namespace leeway {
namespace {

constexpr size_t kLastRounds = 10;

// Below this part of the dissimilarity a bound is rounding: with one full-batch
// step there is no drift at all.
constexpr double kRounding = 1e-22;

std::string LocalWork(const v1::LocalRule& rule) {
  std::string text = rule.has_auto_steps() ? absl::StrCat("1 to ", rule.auto_steps().largest(),
                                                          " local steps, chosen")
                     : rule.steps() > 0    ? absl::StrCat(rule.steps(), " local steps")
                                           : absl::StrCat(rule.epochs(), " local epochs");
  if (rule.step_size() > 0) {
    absl::StrAppend(&text, ", step size ", rule.step_size());
  } else {
    text += ", automatic step size";
  }
  if (rule.batch_size() > 0) absl::StrAppend(&text, ", batches of ", rule.batch_size());
  return text;
}

std::string MeasuresText(const v1::Train& train) {
  std::string text;
  if (train.has_probe()) {
    absl::StrAppend(&text, ", probing after ", absl::StrJoin(train.probe_at(), ", "),
                    " rounds for H = ", absl::StrJoin(train.probe().steps(), ", "));
  }
  if (train.has_release()) {
    absl::StrAppend(&text, ", testing release after ", absl::StrJoin(train.release_at(), ", "),
                    " rounds for H = ", absl::StrJoin(train.release().steps(), ", "));
  }
  if (train.evaluate_every() > 0) {
    absl::StrAppend(&text, ", evaluating every ", train.evaluate_every(), " rounds");
  }
  return text;
}

std::string ConfigText(const RunSummary& run) {
  const v1::RunConfig& config = run.config;
  std::string text = absl::StrCat(
      "  ", run.clients, " clients, ", run.evaluators > 0 ? "a central evaluator, " : "",
      config.cohort().size() > 0 ? absl::StrCat(config.cohort().size(), " in a training round")
                                 : "all in every round",
      ", ", config.weighting() == v1::EXAMPLES ? "weighted by examples" : "equal weights", ", ",
      ModelKind(config.model()), ", seed ", config.seed(), "\n");
  for (int i = 0; i < config.phases_size(); ++i) {
    absl::StrAppend(&text, "  phase ", i + 1, ": ", PhaseText(config.phases(i)), "\n");
  }
  for (const EpochNames& epoch : NamesOf(run.epochs, run.roster)) {
    if (epoch.number > 1) absl::StrAppend(&text, "  ", EpochText(epoch), "\n");
  }
  const std::string mixed = MixedEpochs(run.records);
  if (!mixed.empty()) absl::StrAppend(&text, "  note: ", mixed, "\n");
  return text;
}

std::string OptimumText(const RunSummary& run) {
  const v1::RoundRecord* optimum = FindOptimum(run);
  if (optimum == nullptr) return "";
  return absl::StrFormat("\nOptimum: |grad F| = %.3g after %d rounds, loss %.6g\n",
                         optimum->gradient_norm(), RoundsOfPhase(run, optimum->phase()),
                         optimum->loss());
}

bool WhileTraining(const RunSummary& run, const v1::RoundRecord& record) {
  const auto phase = static_cast<int>(record.phase());
  return phase < run.config.phases_size() && run.config.phases(phase).has_train();
}

std::string ProbeTable(const RunSummary& run, const v1::RoundRecord& probe) {
  // With all clients both measures are the same; with a sample only one is fair.
  const bool sampled =
      std::any_of(probe.drift().begin(), probe.drift().end(), [](const v1::DriftAtSteps& drift) {
        return drift.unbiased_drift_squared() != drift.average_drift_squared();
      });
  const bool training = WhileTraining(run, probe);
  std::string text = absl::StrFormat(
      "\nDrift at %s%s (step size %g, %d clients, dissimilarity %.4g)\n\n"
      "       H  %s   Jensen bound    bound / ρ²\n",
      PointName(probe.point()), training ? " " + WhenText(run, probe) : "", probe.step_size(),
      probe.reports(), probe.dissimilarity(), sampled ? " ρ², unbiased" : "           ρ²");
  for (const v1::DriftAtSteps& drift : probe.drift()) {
    const double squared = drift.unbiased_drift_squared();
    const bool has_ratio = Drifts(probe, drift) && squared > 0;
    absl::StrAppendFormat(&text, "  %6d  %13s   %12.4g  %12s\n", drift.h(),
                          std::isnan(squared) ? "-" : absl::StrFormat("%.4g", squared),
                          drift.drift_bound(),
                          has_ratio ? absl::StrFormat("%.4g", drift.drift_bound() / squared) : "-");
  }
  return text;
}

std::string LastRoundsText(const RunSummary& run) {
  const std::vector<v1::RoundRecord> rounds = RecordsOf(run, v1::TRAIN_ROUND);
  if (rounds.empty()) return "";
  std::string text =
      "\nLast training rounds\n\n"
      "   round          loss            ρ²   Jensen bound   reports   seconds\n";
  const size_t first = rounds.size() > kLastRounds ? rounds.size() - kLastRounds : 0;
  for (size_t i = first; i < rounds.size(); ++i) {
    const v1::RoundRecord& round = rounds[i];
    const bool measured = round.drift_size() > 0;
    absl::StrAppendFormat(
        &text, "  %6d  %12s  %12s   %12s   %7d  %8.4f\n", round.round_in_phase(),
        std::isnan(round.loss()) ? "-" : absl::StrFormat("%.6g", round.loss()),
        measured ? absl::StrFormat("%.4g", round.drift(0).average_drift_squared()) : "-",
        measured ? absl::StrFormat("%.4g", round.drift(0).drift_bound()) : "-", round.reports(),
        round.seconds());
  }
  return text;
}

std::string EvaluationsText(const RunSummary& run) {
  std::string text;
  for (const v1::RoundRecord& round : EvaluationsOf(run)) {
    absl::StrAppend(&text, "\nEvaluation (", WhenText(run, round), "): ", EvaluationText(round),
                    "\n");
    if (round.percentiles().empty()) continue;
    text += "  share of clients at most      accuracy     test loss\n";
    for (const v1::ClientPercentile& one : round.percentiles()) {
      absl::StrAppendFormat(&text, "  %23.4g %%  %10.2f %%  %12.6g\n", one.percent(),
                            100 * one.accuracy(), one.loss());
    }
  }
  return text;
}

// What the run's probes and fixed points say. What the shares of the drift's bounds
// suggest is left out where there is a verdict, which knows better.
struct Answer {
  std::string probes;
  std::string verdict;
};

// A model of one's own may be anything.
bool IsConvex(const v1::Model& model) {
  return !model.has_mlp() && !model.has_cnn() && !model.has_lstm() && !model.has_file();
}

Answer AnswerOf(const RunSummary& run) {
  const absl::StatusOr<Verdict> verdict = Judge(run);
  Answer answer;
  // How far drift cancels out says nothing of what local steps cost a network.
  const bool convex = IsConvex(run.config.model());
  if (verdict.ok()) answer.verdict = absl::StrCat("\nVerdict: ", VerdictText(*verdict));
  for (const std::string& text : RisingLosses(run)) {
    absl::StrAppend(&answer.verdict, "\nWarning: ", text, ".\n");
  }
  for (const v1::RoundRecord& probe : RecordsOf(run, v1::PROBE_ROUND)) {
    answer.probes += ProbeTable(run, probe);
    if (!verdict.ok() && convex) absl::StrAppend(&answer.probes, "\n", Conclusion(probe), "\n");
  }
  if (!verdict.ok() && !convex && !answer.probes.empty()) {
    answer.verdict = absl::StrCat("\nNo verdict: ", verdict.status().message(), ".\n");
  }
  return answer;
}

std::string PlacesText(const RunSummary& run) {
  std::string text = absl::StrCat("\nRecords:     ", run.directory, "/run.db (SQLite)\n");
  if (const uint64_t troubles = run.Troubles(); troubles > 0) {
    absl::StrAppend(&text, "Trouble:     ", troubles, " of ", run.events.size(),
                    " events; leeway report lists them\n");
  }
  for (const auto& [label, name] :
       {std::pair("Optimum:     ", "optimum"), std::pair("Final model: ", "final")}) {
    const std::string path = run.ModelPath(name);
    if (!path.empty()) absl::StrAppend(&text, label, path, "\n");
  }
  return text;
}

}  // namespace

std::vector<v1::RoundRecord> RecordsOf(const RunSummary& run, v1::RoundKind kind,
                                       uint64_t after_round) {
  std::vector<v1::RoundRecord> records;
  for (const v1::RoundRecord& record : run.records) {
    if (record.kind() == kind && record.round() > after_round) records.push_back(record);
  }
  return records;
}

const v1::RoundRecord* FindOptimum(const RunSummary& run, uint64_t before_round) {
  const v1::RoundRecord* found = nullptr;
  for (const v1::RoundRecord& record : run.records) {
    if (record.kind() != v1::OPTIMUM_ROUND || record.round() >= before_round) continue;
    const bool better = found == nullptr || found->phase() != record.phase() ||
                        record.gradient_norm() < found->gradient_norm();
    if (better) found = &record;
  }
  return found;
}

uint64_t RoundsOfPhase(const RunSummary& run, uint32_t phase) {
  uint64_t rounds = 0;
  for (const v1::RoundRecord& record : run.records) {
    if (record.phase() == phase) rounds = std::max(rounds, record.round_in_phase());
  }
  return rounds;
}

std::vector<v1::RoundRecord> EvaluationsOf(const RunSummary& run, uint64_t after_round) {
  std::vector<v1::RoundRecord> evaluations;
  for (v1::RoundRecord record : RecordsOf(run, v1::EVALUATE_ROUND, after_round)) {
    // Rounds that follow one another at the same model of a phase are one evaluation.
    const bool again = !evaluations.empty() && evaluations.back().phase() == record.phase() &&
                       evaluations.back().round() + 1 == record.round() &&
                       evaluations.back().base_sha256() == record.base_sha256();
    if (again) {
      if (evaluations.back().has_comparison()) {  // which the first of them has
        *record.mutable_comparison() = evaluations.back().comparison();
      }
      evaluations.pop_back();
    }
    evaluations.push_back(std::move(record));
  }
  return evaluations;
}

std::string WhenText(const RunSummary& run, const v1::RoundRecord& record) {
  const std::string phase = absl::StrCat("phase ", record.phase() + 1);
  if (!WhileTraining(run, record)) return phase;
  return absl::StrCat("after ", record.round_in_phase(), " rounds of ", phase);
}

std::string EvaluationText(const v1::RoundRecord& round) {
  std::vector<std::string> parts;
  const auto add = [&parts](const char* name, double loss, double accuracy, uint64_t examples) {
    if (examples == 0) return;
    std::string text = absl::StrFormat("%sloss %.6g", name, loss);
    if (std::isfinite(accuracy)) absl::StrAppendFormat(&text, ", accuracy %.2f %%", 100 * accuracy);
    parts.push_back(absl::StrCat(text, " on ", examples, " examples"));
  };
  add("test ", round.test_loss(), round.accuracy(), round.test_examples());
  add("central test ", round.central_loss(), round.central_accuracy(), round.central_examples());
  if (round.has_comparison()) {
    const v1::Comparison& paired = round.comparison();
    parts.push_back(absl::StrCat("of ", paired.clients(), " clients ", paired.winners(),
                                 " have a lower and ", paired.losers(),
                                 round.local_steps() > 0 || round.step_size() > 0
                                     ? " a higher loss by fine-tuning"
                                     : " a higher loss than with the baseline"));
  }
  return parts.empty() ? "no client has a test part" : absl::StrJoin(parts, "; ");
}

bool Drifts(const v1::RoundRecord& probe, const v1::DriftAtSteps& drift) {
  const double scale = std::isfinite(probe.dissimilarity()) ? probe.dissimilarity() : 0;
  return drift.drift_bound() > kRounding * scale;
}

std::string ModelKind(const v1::Model& model) {
  const auto* field = model.GetReflection()->GetOneofFieldDescriptor(
      model, v1::Model::descriptor()->FindOneofByName("kind"));
  return field == nullptr ? "no model" : absl::StrReplaceAll(field->name(), {{"_", " "}});
}

std::string PhaseText(const v1::Phase& phase) {
  switch (phase.kind_case()) {
    case v1::Phase::kOptimum:
      return "find the optimum w*";
    case v1::Phase::kProbe:
      return absl::StrCat("probe the drift at ", PointName(phase.probe().point()),
                          phase.probe().clients() > 0
                              ? absl::StrCat(" with ", phase.probe().clients(), " clients")
                              : "",
                          phase.probe().batch_size() > 0
                              ? absl::StrCat(" in batches of ", phase.probe().batch_size())
                              : "",
                          " for H = ", absl::StrJoin(phase.probe().steps(), ", "));
    case v1::Phase::kTrain:
      return absl::StrCat("train ", phase.train().rounds(), " rounds of FedAvg (",
                          LocalWork(phase.train().local()), ")", MeasuresText(phase.train()));
    case v1::Phase::kEvaluate:
      return absl::StrCat("evaluate ", PointName(phase.evaluate().point()),
                          phase.evaluate().has_fine_tune() ? ", fine-tuned by each client" : "");
    case v1::Phase::kConstants:
      return "measure L, μ and the Hessian dissimilarity";
    case v1::Phase::kFixedPoint:
      return absl::StrCat("find where FedAvg comes to rest for H = ",
                          absl::StrJoin(phase.fixed_point().steps(), ", "));
    case v1::Phase::kRelease:
      return absl::StrCat("test release at ", PointName(phase.release().point()), ": ",
                          phase.release().rounds(),
                          " rounds of H local steps against synchronised "
                          "ones, for H = ",
                          absl::StrJoin(phase.release().steps(), ", "));
    default:
      return "unknown phase";
  }
}

uint64_t RunSummary::Troubles() const {
  return static_cast<uint64_t>(
      std::count_if(events.begin(), events.end(),
                    [](const v1::Event& event) { return IsTrouble(event.kind()); }));
}

std::string RunSummary::ModelPath(absl::string_view name) const {
  for (const NamedModel& model : names) {
    if (model.name == name) {
      return std::filesystem::path(directory) / Store::NamedModelPath(name);
    }
  }
  return "";
}

absl::StatusOr<RunSummary> LoadRun(const std::string& directory) {
  absl::StatusOr<std::unique_ptr<Store>> opened = Store::OpenReadOnly(directory);
  if (absl::IsNotFound(opened.status())) {
    return absl::NotFoundError(absl::StrCat(
        opened.status().message(),
        "; name the --out directory of a run, or start one with `leeway run CONFIG --data DATA "
        "--out ",
        directory, "`"));
  }
  LEEWAY_RETURN_IF_ERROR(opened.status());
  const Store& store = **opened;
  LEEWAY_ASSIGN_OR_RETURN(RunSummary run, ReadHead(store, directory));
  if (!run.begun) return run;
  LEEWAY_ASSIGN_OR_RETURN(run.records, store.RoundsAfter(0));
  LEEWAY_ASSIGN_OR_RETURN(run.events, store.EventsAfter(0));
  return run;
}

absl::StatusOr<RunSummary> ReadHead(const Store& store, const std::string& directory) {
  RunSummary run;
  run.directory = directory;
  run.begun = store.begun();
  if (!run.begun) return run;
  LEEWAY_ASSIGN_OR_RETURN(run.run_id, store.RunId());
  LEEWAY_ASSIGN_OR_RETURN(run.state, store.State());
  LEEWAY_ASSIGN_OR_RETURN(run.message, store.Message());
  LEEWAY_ASSIGN_OR_RETURN(run.config, store.Config());
  LEEWAY_ASSIGN_OR_RETURN(run.roster, store.Roster());
  LEEWAY_ASSIGN_OR_RETURN(run.epochs, store.Epochs());
  for (const StoredClient& client : run.roster) {
    ++(client.examples > 0 ? run.clients : run.evaluators);
  }
  if (!run.epochs.empty()) run.clients = run.epochs.back().population();
  LEEWAY_ASSIGN_OR_RETURN(run.names, store.NamedModels());
  return run;
}

uint64_t PopulationOf(const RunSummary& run, const v1::RoundRecord& record) {
  return record.population() > 0 ? record.population() : run.clients;
}

std::string StateName(v1::RunState state) {
  return absl::AsciiStrToLower(v1::RunState_Name(state));
}

std::string PointName(v1::Probe::Point point) {
  switch (point) {
    case v1::Probe::INITIAL:
      return "the initial model";
    case v1::Probe::OPTIMUM:
      return "w*";
    default:
      return "the current model";
  }
}

std::string RunText(const RunSummary& run) {
  const std::string name = run.config.name().empty() ? run.directory : run.config.name();
  std::string text = absl::StrCat(name, ": ", StateName(run.state));
  if (!run.begun) return absl::StrCat(text, ", waiting for its clients to join\n");
  const Answer answer = AnswerOf(run);
  absl::StrAppend(&text, run.message.empty() ? "" : ": ", run.message, "\n", ConfigText(run),
                  OptimumText(run));
  return absl::StrCat(text, answer.probes, LastRoundsText(run), EvaluationsText(run),
                      answer.verdict, PlacesText(run));
}

std::string ResultsText(const RunSummary& run) {
  const Answer answer = AnswerOf(run);
  return absl::StrCat(answer.probes, EvaluationsText(run), answer.verdict, PlacesText(run),
                      absl::StrCat("Charts:      leeway report ", run.directory,
                                   "\nRead again:  leeway show ", run.directory, "\n"));
}

// Where all clients reported, both ends of the interval are the value.
double LargestDrift(const v1::DriftAtSteps& drift) { return drift.interval_high(); }

std::string Conclusion(const v1::RoundRecord& probe) {
  const v1::DriftAtSteps* worst = nullptr;
  double worst_share = 0;
  uint32_t first = 0, last = 0;
  bool sampled = false;
  const std::string where = absl::StrCat("At ", PointName(probe.point()));
  for (const v1::DriftAtSteps& drift : probe.drift()) {
    if (!Drifts(probe, drift)) continue;
    const double largest = LargestDrift(drift);
    if (std::isnan(largest)) {
      return absl::StrFormat(
          "%s the average drift is not known: %d of the clients are too few to tell; probe at "
          "least 4 "
          "(probe.clients), or all of them.",
          where, probe.reports());
    }
    sampled = sampled || drift.interval_low() < largest;
    const double share = std::max(0.0, largest) / drift.drift_bound();
    if (worst == nullptr) first = drift.h();
    last = drift.h();
    if (worst != nullptr && share <= worst_share) continue;
    worst = &drift;
    worst_share = share;
  }
  if (worst == nullptr) {
    return absl::StrCat(where, " no client drifts: there is nothing to cancel.");
  }
  const std::string range = first == last ? absl::StrCat("for H = ", first)
                                          : absl::StrCat("for every H from ", first, " to ", last);
  const std::string drift =
      sampled ? "average drift squared (the upper end of its 95 % interval from a sample)"
              : "average drift squared";
  if (worst_share < 1e-9) {
    return absl::StrCat(where, " the ", drift, " cannot be told from zero ", range,
                        ": client disagreement cancels out.");
  }
  if (worst_share <= 0.1) {
    return absl::StrFormat(
        "%s the %s stays at least %d times below its bound %s: client disagreement cancels out.",
        where, drift, static_cast<int64_t>(1 / worst_share), range);
  }
  return absl::StrFormat(
      "%s the %s reaches %.3g %% of its bound (at H = %d): client disagreement "
      "%s.",
      where, drift, 100 * worst_share, worst->h(),
      sampled              ? "may not cancel"
      : worst_share <= 0.5 ? "cancels only in part"
                           : "does not cancel");
}

}  // namespace leeway
