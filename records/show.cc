#include "records/show.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/plural.h"
#include "common/status.h"
#include "records/epochs.h"
#include "records/events.h"
#include "records/final_loss.h"
#include "records/text_table.h"
#include "records/verdict_text.h"

namespace leeway {
namespace {

constexpr size_t kLastRounds = 10;

// Below this part of the dissimilarity a bound is rounding: with one full-batch
// step there is no drift at all.
constexpr double kRounding = 1e-22;

std::string NumberOrDash(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.4g", value) : "-";
}

std::string ConfigText(const RunSummary& run) {
  const v1::RunConfig& config = run.config;
  std::string text = absl::StrCat(
      "  ", Counted(run.clients, "client"), ", ", run.evaluators > 0 ? "a central evaluator, " : "",
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
  return absl::StrFormat("\nOptimum: |grad F| = %.3g after %s, loss %.6g\n",
                         optimum->gradient_norm(),
                         Counted(RoundsOfPhase(run, optimum->phase()), "round"), optimum->loss());
}

bool WhileTraining(const RunSummary& run, const v1::RoundRecord& record) {
  const auto phase = static_cast<int>(record.phase());
  return phase < run.config.phases_size() && run.config.phases(phase).has_train();
}

std::string ProbeTable(const RunSummary& run, const v1::RoundRecord& probe) {
  const bool sampled = std::any_of(
      probe.drift().begin(), probe.drift().end(),
      [](const v1::DriftAtSteps& drift) { return drift.interval_low() < drift.interval_high(); });
  const bool training = WhileTraining(run, probe);
  std::string text = absl::StrFormat(
      "\nDrift at %s%s (step size %.4g, %s, dissimilarity %.4g)\n\n"
      "       H             ρ²   Jensen bound    bound / ρ²%s\n",
      PointName(probe.point()), training ? " " + WhenText(run, probe) : "", probe.step_size(),
      Counted(probe.reports(), "client"), probe.dissimilarity(),
      sampled ? "            95 % interval" : "");
  for (const v1::DriftAtSteps& drift : probe.drift()) {
    const double squared = drift.unbiased_drift_squared();
    const bool has_ratio = Drifts(probe, drift) && squared > 0;
    absl::StrAppendFormat(&text, "  %6d  %13s   %12.4g  %12s", drift.h(), NumberOrDash(squared),
                          drift.drift_bound(),
                          has_ratio ? NumberOrDash(drift.drift_bound() / squared) : "-");
    if (sampled) {
      absl::StrAppendFormat(&text, "  %10s to %10s", NumberOrDash(drift.interval_low()),
                            NumberOrDash(drift.interval_high()));
    }
    text += "\n";
  }
  return text;
}

// Of the time of everybody who hosted clients, over all rounds; a long round counts for more.
double MeanIdleShare(const std::vector<v1::RoundRecord>& rounds) {
  double idle = 0;
  double seconds = 0;
  for (const v1::RoundRecord& round : rounds) {
    if (!std::isfinite(round.idle_share())) continue;
    idle += round.idle_share() * round.seconds();
    seconds += round.seconds();
  }
  return seconds > 0 ? idle / seconds : 0;
}

std::string LastRoundsText(const RunSummary& run) {
  const std::vector<v1::RoundRecord> rounds = RecordsOf(run, v1::TRAIN_ROUND);
  if (rounds.empty()) return "";
  std::string text =
      "\nLast training rounds, with the loss and the drift at the model that they start from\n\n"
      "   round          loss            ρ²   Jensen bound   reports   seconds\n";
  const size_t first = rounds.size() > kLastRounds ? rounds.size() - kLastRounds : 0;
  for (size_t i = first; i < rounds.size(); ++i) {
    const v1::RoundRecord& round = rounds[i];
    const bool measured = round.drift_size() > 0;
    absl::StrAppendFormat(&text, "  %6d  %12s  %12s   %12s   %7d  %8.4f\n", round.round_in_phase(),
                          LossText(round.loss()),
                          measured ? NumberOrDash(round.drift(0).unbiased_drift_squared()) : "-",
                          measured ? NumberOrDash(round.drift(0).drift_bound()) : "-",
                          round.reports(), round.seconds());
  }
  if (const double idle = MeanIdleShare(rounds); idle > 0) {
    absl::StrAppendFormat(&text, "\nIdle share of the hosts' threads and ranks: %.1f %%\n",
                          100 * idle);
  }
  const std::string final_loss = FinalLossText(run);
  if (!final_loss.empty()) absl::StrAppend(&text, "\nTraining loss: ", final_loss, "\n");
  return text;
}

// Evaluations while training, one line each.
std::string TrainingEvaluations(const RunSummary& run,
                                const std::vector<v1::RoundRecord>& evaluations) {
  std::vector<std::vector<std::string>> rows;
  for (const v1::RoundRecord& round : evaluations) {
    if (!WhileTraining(run, round)) continue;
    const bool central = round.test_examples() == 0;
    const double accuracy = central ? round.central_accuracy() : round.accuracy();
    rows.push_back({absl::StrCat(round.round_in_phase()),
                    LossText(central ? round.central_loss() : round.test_loss()),
                    std::isfinite(accuracy) ? absl::StrFormat("%.4g %%", 100 * accuracy) : "-",
                    absl::StrCat("phase ", round.phase() + 1)});
  }
  if (rows.size() < 2) return "";
  if (rows.size() > kLastRounds) rows.erase(rows.begin(), rows.end() - kLastRounds);
  return absl::StrCat("\nLast evaluations while training\n\n",
                      TextTable({"  rounds", "test loss", "accuracy", "of"}, rows));
}

std::string EvaluationsText(const RunSummary& run) {
  const std::vector<v1::RoundRecord> evaluations = EvaluationsOf(run);
  std::string text = TrainingEvaluations(run, evaluations);
  for (const v1::RoundRecord& round : evaluations) {
    const bool last = round.round() == evaluations.back().round();
    if (WhileTraining(run, round) && !last) continue;
    absl::StrAppend(&text, "\nEvaluation (", WhenText(run, round), "): ", EvaluationText(round),
                    "\n");
    if (round.percentiles().empty()) continue;
    text += "\n  of the clients   have accuracy at most   have test loss at most\n";
    for (const v1::ClientPercentile& one : round.percentiles()) {
      absl::StrAppendFormat(&text, "  %12.4g %%  %20.4g %%  %22.6g\n", one.percent(),
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
    absl::StrAppend(&text, "Trouble:     ", troubles, " of ", Counted(run.events.size(), "event"),
                    "; leeway report lists them\n");
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
  return absl::StrCat("after ", Counted(record.round_in_phase(), "round"), " of ", phase);
}

std::string EvaluationText(const v1::RoundRecord& round) {
  std::vector<std::string> parts;
  const auto add = [&parts](const char* name, double loss, double accuracy, double majority,
                            double auc, uint64_t examples) {
    if (examples == 0) return;
    std::string text = absl::StrFormat("%sloss %.6g", name, loss);
    if (std::isfinite(accuracy)) absl::StrAppendFormat(&text, ", accuracy %.4g %%", 100 * accuracy);
    // Of records without it: zero.
    if (majority > 0)
      absl::StrAppendFormat(&text, " (most frequent class: %.4g %%)", 100 * majority);
    if (auc > 0) absl::StrAppendFormat(&text, ", AUC %.4g", auc);
    parts.push_back(absl::StrCat(text, " on ", Counted(examples, "example")));
  };
  add("test ", round.test_loss(), round.accuracy(), round.majority_accuracy(), round.auc(),
      round.test_examples());
  if (!parts.empty() && round.test_clients() > 0) {
    absl::StrAppend(&parts.back(), " of ", round.test_clients(), " of ",
                    Counted(round.reports(), "client"));
  }
  add("central test ", round.central_loss(), round.central_accuracy(),
      round.central_majority_accuracy(), round.central_auc(), round.central_examples());
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

std::string LossText(double loss) {
  return std::isfinite(loss) ? absl::StrFormat("%.6g", loss) : "-";
}

std::string FinalLossText(const RunSummary& run) {
  const v1::RoundRecord* round = FinalLoss(run);
  if (round == nullptr) return "";
  return absl::StrCat(LossText(round->loss()), " after ",
                      Counted(TrainingOf(run, *round)->rounds, "round"));
}

bool Drifts(const v1::RoundRecord& probe, const v1::DriftAtSteps& drift) {
  const double scale = std::isfinite(probe.dissimilarity()) ? probe.dissimilarity() : 0;
  return drift.drift_bound() > kRounding * scale;
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
  run.served = Store::InUse(directory);
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

std::string RunText(const RunSummary& run) {
  const std::string name = run.config.name().empty() ? run.directory : run.config.name();
  std::string text = absl::StrCat(name, ": ", StateName(run));
  if (!run.begun) {
    return absl::StrCat(text, run.served ? ", waiting for its clients to join\n"
                                         : " before its clients had joined\n");
  }
  if (StateName(run) == "stopped") {
    absl::StrAppend(&text, " after ", Counted(run.records.size(), "round"),
                    "; the command that started it goes on where it stopped");
  }
  const Answer answer = AnswerOf(run);
  absl::StrAppend(&text, run.message.empty() ? "" : ": ", run.message, "\n", ConfigText(run),
                  OptimumText(run));
  return absl::StrCat(text, answer.probes, LastRoundsText(run), EvaluationsText(run),
                      answer.verdict, PlacesText(run));
}

std::string ResultsText(const RunSummary& run) {
  const Answer answer = AnswerOf(run);
  const std::string final_loss = FinalLossText(run);
  return absl::StrCat(answer.probes,
                      final_loss.empty() ? "" : absl::StrCat("\nTraining loss: ", final_loss, "\n"),
                      EvaluationsText(run), answer.verdict, PlacesText(run),
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
    return absl::StrCat(where, " the ", drift, " cannot be distinguished from zero ", range,
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
