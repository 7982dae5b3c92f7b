#include "records/verdict.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/plural.h"
#include "records/epochs.h"
#include "records/final_loss.h"
#include "records/network_config.h"
#include "records/theory.h"
#include "records/who_pays.h"

namespace leeway {
namespace {

// From here on, the floor over what is measured is not worth comparing.
constexpr double kVacuous = 1e4;

// L and μ at w*: the curvature of softmax regression depends on the model.
constexpr char kPhasesToAdd[] =
    "phases { optimum {} } phases { constants { point: OPTIMUM } } "
    "phases { fixed_point { steps: [1, 10, 100] } }";

// The step size is left to the reader: a test is about the one that training uses.
constexpr char kReleaseToAdd[] = "phases { release { step_size: ETA steps: [1, 10, 50] } }";

// Numbers of steps that a fixed_point phase lists and has no result for.
std::vector<uint32_t> MissingSteps(const RunSummary& run) {
  std::vector<uint32_t> missing;
  for (int phase = 0; phase < run.config.phases_size(); ++phase) {
    for (const uint32_t h : run.config.phases(phase).fixed_point().steps()) {
      const bool found =
          std::any_of(run.records.begin(), run.records.end(), [&](const v1::RoundRecord& record) {
            return static_cast<int>(record.phase()) == phase && record.fixed_point().h() == h;
          });
      if (!found) missing.push_back(h);
    }
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  return missing;
}

// What is found at one number of local steps, of fixed points or of release tests.
struct Found {
  uint32_t h;
  Finding finding;
};

std::optional<uint32_t> LargestHarmless(const std::vector<Found>& all,
                                        const std::vector<uint32_t>& missing) {
  const auto end = std::find_if(all.begin(), all.end(),
                                [](const Found& one) { return one.finding != Finding::kHarmless; });
  std::optional<uint32_t> largest;
  for (auto one = all.begin(); one != end; ++one) {
    if (!missing.empty() && one->h >= missing.front()) break;
    // With another step size the same h may not be harmless.
    if (end == all.end() || one->h < end->h) largest = one->h;
  }
  return largest;
}

// The finding of all together, and the largest harmless h.
void Weigh(const std::vector<Found>& all, Verdict& verdict) {
  const auto any = [&](Finding finding) {
    return std::any_of(all.begin(), all.end(),
                       [&](const Found& one) { return one.finding == finding; });
  };
  verdict.largest_harmless_h = LargestHarmless(all, verdict.missing_h);
  if (any(Finding::kConflict)) {
    verdict.finding = Finding::kConflict;
  } else if (!any(Finding::kUncertain) && verdict.missing_h.empty()) {
    verdict.finding = Finding::kHarmless;
  }
}

const Evidence* FirstWith(const std::vector<Evidence>& evidence, Finding finding) {
  const auto found = std::find_if(evidence.begin(), evidence.end(),
                                  [&](const Evidence& one) { return one.finding == finding; });
  return found == evidence.end() ? nullptr : &*found;
}

std::string GapText(const RunSummary& run, const Evidence& evidence) {
  return absl::StrFormat(
      "with local steps of %.3g FedAvg settles %.3g above the optimum and loses %.2g %% of what "
      "the "
      "model explains (%d clients)",
      evidence.step_size, evidence.gap, 100 * evidence.lost, run.clients);
}

std::string HarmlessSentence(const RunSummary& run, const Verdict& verdict) {
  const Evidence& worst =
      *std::max_element(verdict.evidence.begin(), verdict.evidence.end(),
                        [](const Evidence& a, const Evidence& b) { return a.lost < b.lost; });
  return absl::StrFormat(
      "Heterogeneity does not hurt here up to H = %d local steps of %.3g: where FedAvg settles, it "
      "loses at most %.2g %% of what the model explains (%d clients)%s.",
      verdict.evidence.back().h, verdict.evidence.back().step_size, 100 * std::max(0.0, worst.lost),
      run.clients,
      worst.lost < HarmlessLost(run.config)
          ? ""
          : ", less than the optimum itself owes to the choice of clients and examples");
}

std::string MissingText(const RunSummary& run, const Verdict& verdict) {
  return absl::StrCat(
      "There is not enough evidence at H = ", absl::StrJoin(verdict.missing_h, ", "),
      run.state == v1::FAILED ? ": the run failed before it found where FedAvg settles there; "
                                "fix this and run it again in a new directory."
                              : ": the run has not found yet where FedAvg settles there; "
                                "complete it with the same `leeway run` command.");
}

std::string UncertainSentence(const RunSummary& run, const Verdict& verdict) {
  if (run.clients < 2) {
    return "A single client cannot disagree with itself: there is no verdict on heterogeneity.";
  }
  const Evidence* uncertain = FirstWith(verdict.evidence, Finding::kUncertain);
  if (uncertain == nullptr) return MissingText(run, verdict);
  const Evidence& first = *uncertain;
  if (!first.doubt.empty()) {
    return absl::StrFormat("There is not enough evidence at H = %d: %s.", first.h, first.doubt);
  }
  const std::string text =
      absl::StrFormat("Uncertain from H = %d: %s", first.h, GapText(run, first));
  if (first.lost <= ConflictLost(run.config)) {
    return absl::StrFormat("%s; below %.2g %% is harmless, above %.2g %% a conflict.", text,
                           100 * HarmlessLost(run.config), 100 * ConflictLost(run.config));
  }
  return absl::StrFormat(
      "%s, but another sample of clients and examples could change the optimum's own loss by as "
      "much "
      "(%.2g); measure with more clients or more examples.",
      text, first.sampling_error);
}

std::string Sentence(const RunSummary& run, const Verdict& verdict) {
  if (verdict.finding == Finding::kHarmless) return HarmlessSentence(run, verdict);
  std::string text;
  if (verdict.finding == Finding::kConflict) {
    const Evidence& first = *FirstWith(verdict.evidence, Finding::kConflict);
    text = absl::StrFormat(
        "Clients conflict from H = %d: %s; consider fewer local steps or personalised models.",
        first.h, GapText(run, first));
  } else {
    text = UncertainSentence(run, verdict);
  }
  const std::string missing = MissingText(run, verdict);
  if (!verdict.missing_h.empty() && text != missing) absl::StrAppend(&text, " ", missing);
  // One step is plain gradient descent: that it is harmless says nothing.
  if (verdict.largest_harmless_h.value_or(0) > 1) {
    absl::StrAppend(&text, " Up to H = ", *verdict.largest_harmless_h, " it does not hurt.");
  }
  return text;
}

void WarnOfSteps(const RunSummary& run, Verdict& verdict) {
  const v1::ConstantsResult* constants = FindConstants(run);
  if (constants == nullptr) {
    verdict.warnings.push_back(
        "L and μ were not measured, so the step size could not be checked and there is no floor; "
        "add `phases { constants { point: OPTIMUM } }` after `optimum`");
    return;
  }
  if (!(constants->smallest_client_convexity() > 0)) {
    verdict.warnings.push_back(
        absl::StrFormat("some client is not strongly convex (μ = %.3g): Theorem 2 gives no floor",
                        constants->smallest_client_convexity()));
  }
  std::vector<double> warned;
  for (const Evidence& one : verdict.evidence) {
    const std::string problem = StepSizeProblem(one.step_size, one.h, *constants);
    const bool known = std::any_of(warned.begin(), warned.end(),
                                   [&](double eta) { return SameStepSize(eta, one.step_size); });
    if (problem.empty() || known) continue;
    warned.push_back(one.step_size);
    verdict.warnings.push_back(
        absl::StrCat(problem, ": the theory's conditions do not hold from H = ", one.h,
                     " on, and its floor is no bound there"));
  }
}

// A floor that is everywhere far above what is measured bounds nothing of use.
void WarnOfFloor(const RunSummary& run, Verdict& verdict) {
  double least = std::numeric_limits<double>::infinity();
  for (const Evidence& one : verdict.evidence) {
    if (one.h > 1 && one.floor > 0) least = std::min(least, one.floor / one.distance_squared);
  }
  if (least < kVacuous || !std::isfinite(least)) return;
  const v1::ConstantsResult& constants = *FindConstants(run);
  verdict.warnings.push_back(absl::StrFormat(
      "Theorem 2's floor says nothing here: it is at least %.1g times the measured |w_H-w*|², for "
      "some client's smallest curvature μ = %.2g is tiny beside L = %.3g",
      least, constants.smallest_client_convexity(), constants.largest_client_smoothness()));
}

void WarnOfGaps(const RunSummary& run, Verdict& verdict) {
  std::vector<uint32_t> unprobed;
  for (const Evidence& one : verdict.evidence) {
    if (std::isnan(one.drift_bound)) unprobed.push_back(one.h);
  }
  if (!unprobed.empty()) {
    verdict.warnings.push_back(absl::StrFormat(
        "ρ² was not measured at H = %s; add `phases { probe { point: OPTIMUM step_size: %.17g "
        "steps: [%s] } }`",
        absl::StrJoin(unprobed, ", "), verdict.evidence.back().step_size,
        absl::StrJoin(unprobed, ", ")));
  }
  if (verdict.evidence.back().h == 1) {
    verdict.warnings.push_back(
        "H = 1 is plain gradient descent, which does not drift; list larger H in "
        "fixed_point.steps");
  }
  if (run.state != v1::DONE) {
    verdict.warnings.push_back(absl::StrCat("the run is not complete (", StateName(run),
                                            run.message.empty() ? "" : ": ", run.message,
                                            run.state == v1::FAILED ? DivergenceText(run) : "",
                                            "): this is from what was measured so far"));
  }
}

void WarnOfClients(Verdict& verdict) {
  for (const Evidence& one : verdict.evidence) {
    if (one.probe_clients == 0 || one.probe_clients >= one.probe_population) continue;
    verdict.warnings.push_back(absl::StrFormat(
        "ρ² is an estimate from %d of %d clients, and the floor that of the upper end of its "
        "interval",
        one.probe_clients, one.probe_population));
    break;
  }
}

void WarnOfEpochs(const RunSummary& run, Verdict& verdict) {
  std::string mixed = MixedEpochs(run.records);
  if (!mixed.empty()) verdict.warnings.push_back(std::move(mixed));
}

// What the sentence does not say already.
void WarnOfDoubts(const RunSummary& run, Verdict& verdict) {
  if (run.clients < 2) return;
  for (const Evidence& one : verdict.evidence) {
    if (one.doubt.empty() || absl::StrContains(verdict.sentence, one.doubt)) continue;
    verdict.warnings.push_back(
        absl::StrCat("there is not enough evidence at H = ", one.h, ": ", one.doubt));
  }
}

// The two ways to a verdict should agree.
void WarnOfReleases(Verdict& verdict) {
  for (const ReleaseEvidence& release : verdict.releases) {
    for (const Evidence& one : verdict.evidence) {
      const bool same =
          one.h == release.result.h() && SameStepSize(one.step_size, release.result.step_size());
      const bool differ = one.finding != release.finding && one.finding != Finding::kUncertain &&
                          release.finding != Finding::kUncertain;
      if (!same || !differ) continue;
      verdict.warnings.push_back(absl::StrFormat(
          "the release test at H = %d says %s (local steps lose %.2g %% of what the model "
          "explains), the fixed point %s: where training has not settled they differ "
          "(docs/measures.md, 8)",
          one.h, FindingName(release.finding), 100 * release.result.lost(),
          FindingName(one.finding)));
    }
  }
}

// Of what is found at each number of local steps: the sentence of the one that matters most.
template <typename All>
std::string WhoPaysSentence(const All& all) {
  const v1::WhoPays* chosen = nullptr;
  for (const auto& one : all) {
    if (!one.who_pays) continue;
    chosen = &*one.who_pays;
    if (one.finding == Finding::kConflict) break;
  }
  return chosen == nullptr ? "" : WhoPaysText(*chosen);
}

void JudgeReleases(const RunSummary& run, Verdict& verdict) {
  verdict.sentence = ReleaseSentence(run, verdict.releases, verdict.finding);
  if (!verdict.missing_h.empty()) {
    absl::StrAppend(&verdict.sentence,
                    " The release test at H = ", absl::StrJoin(verdict.missing_h, ", "),
                    run.state == v1::FAILED
                        ? " was not completed: the run failed; run it again in a new directory."
                        : " is not complete yet; complete it with the same `leeway run` command.");
  }
  if (verdict.finding != Finding::kHarmless && verdict.largest_harmless_h.value_or(0) > 1) {
    absl::StrAppend(&verdict.sentence, " Up to H = ", *verdict.largest_harmless_h,
                    " it does not hurt.");
  }
  for (const ReleaseEvidence& one : verdict.releases) {
    if (one.doubt.empty() || absl::StrContains(verdict.sentence, one.doubt)) continue;
    verdict.warnings.push_back(
        absl::StrCat("there is not enough evidence at H = ", one.result.h(), ": ", one.doubt));
  }
  if (std::isnan(verdict.releases.back().result.batch_error())) {
    verdict.warnings.push_back(
        "both branches were taken once, so the intervals do not hold the noise of the batches; "
        "raise release.repeats");
  }
}

absl::Status NoFixedPoint(const RunSummary& run) {
  const auto& phases = run.config.phases();
  const v1::Model& model = run.config.model();
  if (!MissingReleases(run).empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(run.directory, " has not completed its release test: the run is ",
                     StateName(run), run.message.empty() ? "" : ": ", run.message,
                     run.state == v1::FAILED ? "; fix this and run it again in a new directory"
                                             : "; complete it with the same `leeway run` command"));
  }
  if (IsNetwork(model) || model.has_file()) {
    return absl::FailedPreconditionError(absl::StrCat(
        run.directory, " has not enough evidence for a verdict: add a release phase, `",
        kReleaseToAdd,
        "`, at the end of the config, with the step size of training for ETA, and "
        "run it again"));
  }
  const bool asked = std::any_of(phases.begin(), phases.end(),
                                 [](const v1::Phase& phase) { return phase.has_fixed_point(); });
  if (asked && run.state == v1::FAILED) {
    return absl::FailedPreconditionError(
        absl::StrCat(run.directory, " failed before it found where FedAvg settles: ", run.message,
                     DivergenceText(run), "; fix this and run it again in a new directory"));
  }
  if (asked) {
    return absl::FailedPreconditionError(
        absl::StrCat(run.directory, " has not found yet where FedAvg settles: the run is ",
                     StateName(run), "; complete it with the same `leeway run` command"));
  }
  const bool optimum = std::any_of(phases.begin(), phases.end(),
                                   [](const v1::Phase& phase) { return phase.has_optimum(); });
  return absl::FailedPreconditionError(absl::StrCat(
      run.directory, " has no verdict: its config finds ",
      optimum ? "w*, but not where FedAvg settles"
              : "neither the optimum w* nor where FedAvg settles",
      "; add `", kPhasesToAdd, "` to the config (leaving out what it has), and run it again"));
}

}  // namespace

absl::StatusOr<Verdict> Judge(const RunSummary& run) {
  Verdict verdict;
  verdict.evidence = CollectEvidence(run);
  verdict.releases = CollectReleases(run);
  std::vector<Found> all;
  if (verdict.evidence.empty()) {
    if (verdict.releases.empty()) return NoFixedPoint(run);
    for (const ReleaseEvidence& one : verdict.releases) {
      all.push_back({one.result.h(), one.finding});
    }
    verdict.missing_h = MissingReleases(run);
    Weigh(all, verdict);
    JudgeReleases(run, verdict);
    verdict.who_pays = WhoPaysSentence(verdict.releases);
    WarnOfEpochs(run, verdict);
    return verdict;
  }
  for (const Evidence& one : verdict.evidence) all.push_back({one.h, one.finding});
  verdict.missing_h = MissingSteps(run);
  Weigh(all, verdict);
  verdict.sentence = Sentence(run, verdict);
  WarnOfSteps(run, verdict);
  WarnOfFloor(run, verdict);
  WarnOfGaps(run, verdict);
  WarnOfClients(verdict);
  WarnOfEpochs(run, verdict);
  WarnOfDoubts(run, verdict);
  WarnOfReleases(verdict);
  verdict.trained = CollectTrained(run, verdict.evidence);
  verdict.who_pays = WhoPaysSentence(verdict.evidence);
  return verdict;
}

std::string DivergenceText(const RunSummary& run) {
  const v1::ConstantsResult* constants = FindConstants(run);
  double largest = 0;
  for (const v1::Phase& phase : run.config.phases()) {
    largest = std::max({largest, phase.probe().step_size(), phase.fixed_point().step_size(),
                        phase.train().local().step_size()});
  }
  if (constants == nullptr || largest * constants->largest_client_smoothness() <= 2) return "";
  return absl::StrCat("; ", StepSizeProblem(largest, 1, *constants));
}

std::vector<std::string> RisingLosses(const RunSummary& run) {
  std::vector<std::string> texts;
  for (int i = 0; i < run.config.phases_size(); ++i) {
    if (!run.config.phases(i).has_train()) continue;
    const v1::Train& train = run.config.phases(i).train();
    const v1::RoundRecord* first = nullptr;
    const v1::RoundRecord* last = nullptr;
    for (const v1::RoundRecord& record : run.records) {
      if (record.kind() != v1::TRAIN_ROUND || static_cast<int>(record.phase()) != i) continue;
      if (first == nullptr) first = &record;
      last = &record;
    }
    if (first == nullptr || train.start() == v1::Probe::OPTIMUM) continue;
    const v1::RoundRecord* end = LossAfterTraining(run, static_cast<uint32_t>(i));
    if (end == nullptr) end = last;
    // Different clients have different losses: that alone is no rise.
    const double noise =
        last->sampled() < PopulationOf(run, *last) || first->epoch() != last->epoch()
            ? 2 * std::hypot(first->loss_standard_error(), end->loss_standard_error())
            : 0;
    if (!(end->loss() > first->loss() + noise)) continue;
    const v1::ConstantsResult* constants = FindConstants(run);
    const double eta = last->step_size();
    const bool diverges = constants != nullptr && eta * constants->largest_client_smoothness() > 2;
    const std::string remedy =
        diverges                        ? StepSizeProblem(eta, 1, *constants)
        : IsNetwork(run.config.model()) ? absl::StrFormat("try a step size of %.3g", eta / 10)
        : train.local().has_step_size()
            ? "try a smaller one, or auto_step_size: true after a constants phase"
            : "try fewer local steps";
    texts.push_back(
        absl::StrFormat("training made the loss worse: it was %.6g at first and %.6g %s %s "
                        "(phases[%d]), with the step size %.4g; %s",
                        first->loss(), end->loss(), end == last ? "before the last of" : "after",
                        Counted(last->round_in_phase(), "round"), i, eta, remedy));
  }
  return texts;
}

}  // namespace leeway
