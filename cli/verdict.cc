#include "cli/verdict.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/theory.h"

namespace leeway {
namespace {

// A gap below this part of the loss before training is rounding.
constexpr double kRounding = 1e-12;
// How much of the harmless threshold an unfinished search may leave open.
constexpr double kOpenPart = 0.1;

// From here on, the floor over what is measured is not worth comparing.
constexpr double kVacuous = 1e4;

constexpr char kPhasesToAdd[] =
    "phases { constants {} } phases { optimum {} } "
    "phases { fixed_point { steps: [1, 10, 100] } }";

bool SameStepSize(double a, double b) { return std::abs(a - b) <= 1e-9 * std::abs(a); }

// Defaults for configs that were stored before the thresholds were.
double HarmlessBelow(const v1::RunConfig& config) {
  return config.harmless_below() > 0 ? config.harmless_below() : 0.25;
}
double ConflictAbove(const v1::RunConfig& config) {
  return config.conflict_above() > 0 ? config.conflict_above() : 1;
}

double Tolerance(const RunSummary& run, const v1::RoundRecord& record) {
  constexpr double kDefault = 1e-9;
  if (static_cast<int>(record.phase()) >= run.config.phases_size()) return kDefault;
  const v1::Phase& phase = run.config.phases(static_cast<int>(record.phase()));
  return phase.fixed_point().tolerance() > 0 ? phase.fixed_point().tolerance() : kDefault;
}

// Whether the search came so near to rest that the rest of the way cannot matter:
// the pseudo-gradient's convexity is at least mu / 2 (paper, proof of Theorem 2), so
// that w_H is at most 2|G|/mu away, which changes the loss by so much at most.
bool Settled(const RunSummary& run, const v1::RoundRecord& record) {
  const v1::FixedPointResult& result = record.fixed_point();
  if (result.pseudo_gradient_norm() <= Tolerance(run, record)) return true;
  const v1::ConstantsResult* constants = FindConstants(run);
  if (constants == nullptr || !(constants->smallest_client_convexity() > 0)) return false;
  const double away = 2 * result.pseudo_gradient_norm() / constants->smallest_client_convexity();
  const double change = constants->smoothness() * away * (result.distance() + away / 2);
  return change <= kOpenPart * HarmlessBelow(run.config) * result.loss_standard_error();
}

Finding FindingOf(const RunSummary& run, const Evidence& evidence) {
  const double gap = evidence.gap_in_standard_errors;
  const double harmless = HarmlessBelow(run.config);
  // A gap below zero: what was taken for the optimum is none.
  if (!evidence.settled || run.clients < 2 || std::isnan(gap) || gap < -harmless) {
    return Finding::kUncertain;
  }
  if (gap > ConflictAbove(run.config)) return Finding::kConflict;
  return gap < harmless && run.clients >= kFewClients ? Finding::kHarmless : Finding::kUncertain;
}

void AddProbe(const RunSummary& run, Evidence& evidence) {
  const ProbeEntry probe = FindProbe(run, evidence.h, evidence.step_size, 0);
  if (probe.drift == nullptr) return;
  evidence.average_drift_squared = probe.drift->average_drift_squared();
  evidence.unbiased_drift_squared = probe.drift->unbiased_drift_squared();
  evidence.drift_bound = probe.drift->drift_bound();
  evidence.interval_low = probe.drift->interval_low();
  evidence.interval_high = probe.drift->interval_high();
  evidence.probe_clients = probe.probe->reports();
  const v1::ConstantsResult* constants = FindConstants(run);
  if (constants == nullptr) return;
  // A sample's estimate may be negative: then it says nothing about the floor.
  if (evidence.unbiased_drift_squared < 0) return;
  evidence.floor = DriftFloor(evidence.unbiased_drift_squared, *constants);
}

// The size of the numbers that losses come from: the loss where the search for w*
// started, if that is larger than the record's.
double LossScale(const RunSummary& run, const v1::RoundRecord& record) {
  const auto start =
      std::find_if(run.records.begin(), run.records.end(),
                   [](const v1::RoundRecord& round) { return round.kind() == v1::OPTIMUM_ROUND; });
  const double loss = std::abs(record.loss());
  return start == run.records.end() ? loss : std::max(loss, std::abs(start->loss()));
}

Evidence EvidenceOf(const RunSummary& run, const v1::RoundRecord& record) {
  const v1::FixedPointResult& result = record.fixed_point();
  Evidence evidence;
  evidence.h = result.h();
  evidence.step_size = result.step_size();
  evidence.gap = result.loss_gap();
  // Identical clients, or a model that fits all of them, leave no spread to compare
  // with: rounding must not be weighed against rounding.
  const bool rounding = std::abs(result.loss_gap()) <= kRounding * LossScale(run, record);
  const double standard_error = result.loss_standard_error();
  evidence.gap_in_standard_errors =
      rounding && std::isfinite(standard_error) ? 0 : result.loss_gap() / standard_error;
  evidence.distance_squared = result.distance() * result.distance();
  evidence.pseudo_gradient_norm = result.pseudo_gradient_norm();
  evidence.settled = Settled(run, record);
  evidence.finding = FindingOf(run, evidence);
  AddProbe(run, evidence);
  return evidence;
}

// By h, then step size; of the same measured twice, the last.
std::vector<Evidence> CollectEvidence(const RunSummary& run) {
  std::vector<Evidence> all;
  for (const v1::RoundRecord& record : run.records) {
    if (!record.has_fixed_point()) continue;
    const Evidence evidence = EvidenceOf(run, record);
    const auto same = std::find_if(all.begin(), all.end(), [&](const Evidence& other) {
      return other.h == evidence.h && SameStepSize(other.step_size, evidence.step_size);
    });
    if (same == all.end()) {
      all.push_back(evidence);
    } else {
      *same = evidence;
    }
  }
  std::sort(all.begin(), all.end(), [](const Evidence& a, const Evidence& b) {
    return std::tie(a.h, a.step_size) < std::tie(b.h, b.step_size);
  });
  return all;
}

std::optional<uint32_t> LargestHarmless(const std::vector<Evidence>& evidence) {
  const auto end = std::find_if(evidence.begin(), evidence.end(), [](const Evidence& one) {
    return one.finding != Finding::kHarmless;
  });
  std::optional<uint32_t> largest;
  for (auto one = evidence.begin(); one != end; ++one) {
    // With another step size the same h may not be harmless.
    if (end == evidence.end() || one->h < end->h) largest = one->h;
  }
  return largest;
}

const Evidence* FirstWith(const std::vector<Evidence>& evidence, Finding finding) {
  const auto found = std::find_if(evidence.begin(), evidence.end(),
                                  [&](const Evidence& one) { return one.finding == finding; });
  return found == evidence.end() ? nullptr : &*found;
}

std::string GapText(const RunSummary& run, const Evidence& evidence) {
  return absl::StrFormat(
      "FedAvg settles %.3g above the optimum, %.3g standard errors of the loss over %d clients",
      evidence.gap, evidence.gap_in_standard_errors, run.clients);
}

std::string HarmlessSentence(const RunSummary& run, const Verdict& verdict) {
  const Evidence& worst = *std::max_element(
      verdict.evidence.begin(), verdict.evidence.end(), [](const Evidence& a, const Evidence& b) {
        return a.gap_in_standard_errors < b.gap_in_standard_errors;
      });
  return absl::StrFormat(
      "Heterogeneity does not hurt here up to H = %d: where FedAvg settles, the loss is at most "
      "%.2g standard errors (over %d clients) above the optimum.",
      verdict.evidence.back().h, std::max(0.0, worst.gap_in_standard_errors), run.clients);
}

std::string UncertainSentence(const RunSummary& run, const Verdict& verdict) {
  if (run.clients < 2) {
    return "A single client cannot disagree with itself: there is no verdict on heterogeneity.";
  }
  const Evidence& first = *FirstWith(verdict.evidence, Finding::kUncertain);
  if (!first.settled) {
    return absl::StrFormat(
        "It cannot be told at H = %d: the search for FedAvg's fixed point did not come to rest "
        "(|G| = %.2g).",
        first.h, first.pseudo_gradient_norm);
  }
  if (first.gap_in_standard_errors < -HarmlessBelow(run.config)) {
    return absl::StrFormat(
        "It cannot be told at H = %d: FedAvg settles below what was taken for the optimum (gap "
        "%.3g).",
        first.h, first.gap);
  }
  if (run.clients < kFewClients || std::isnan(first.gap_in_standard_errors)) {
    return absl::StrFormat(
        "Not enough clients to tell: the spread of the loss over %d clients is too little known "
        "(at least %d are needed).",
        run.clients, kFewClients);
  }
  return absl::StrFormat("Uncertain from H = %d: %s; below %g is harmless, above %g a conflict.",
                         first.h, GapText(run, first), HarmlessBelow(run.config),
                         ConflictAbove(run.config));
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
        "add `phases { constants {} }` before the others");
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
  std::vector<uint32_t> unsettled, unprobed;
  for (const Evidence& one : verdict.evidence) {
    if (!one.settled) unsettled.push_back(one.h);
    if (std::isnan(one.drift_bound)) unprobed.push_back(one.h);
  }
  if (!unsettled.empty()) {
    verdict.warnings.push_back(absl::StrCat(
        "the search for the fixed point did not come to rest at H = ",
        absl::StrJoin(unsettled, ", "), "; raise fixed_point.max_rounds or lower its step_size"));
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
    verdict.warnings.push_back(absl::StrCat("the run is not complete (", StateName(run.state),
                                            "): this is from what was measured so far"));
  }
}

void WarnOfClients(const RunSummary& run, Verdict& verdict) {
  for (const Evidence& one : verdict.evidence) {
    if (one.probe_clients == 0 || one.probe_clients >= run.clients) continue;
    verdict.warnings.push_back(absl::StrFormat(
        "ρ² and the floor are estimates from %d of %d clients, with the interval beside them",
        one.probe_clients, run.clients));
    break;
  }
  const bool missing =
      std::any_of(run.records.begin(), run.records.end(), [&](const v1::RoundRecord& record) {
        return record.kind() == v1::FIXED_POINT_ROUND && record.reports() < run.clients;
      });
  if (missing) {
    verdict.warnings.push_back(
        "some rounds of the fixed-point search missed clients, so it is not the fixed point of all "
        "of them");
  }
  const bool below = std::any_of(
      verdict.evidence.begin(), verdict.evidence.end(),
      [&](const Evidence& one) { return one.gap_in_standard_errors < -HarmlessBelow(run.config); });
  if (below) {
    verdict.warnings.push_back(
        "FedAvg settles below the optimum's loss: the optimum phase did not reach the optimum; "
        "lower optimum.tolerance or raise optimum.max_rounds");
  }
}

absl::Status NoFixedPoint(const RunSummary& run) {
  const auto& phases = run.config.phases();
  const bool asked = std::any_of(phases.begin(), phases.end(),
                                 [](const v1::Phase& phase) { return phase.has_fixed_point(); });
  if (asked && run.state == v1::FAILED) {
    return absl::FailedPreconditionError(absl::StrCat(
        run.directory, " failed before it found where FedAvg comes to rest: ", run.message,
        DivergenceText(run), "; mend this and run it again in a new directory"));
  }
  if (asked) {
    return absl::FailedPreconditionError(
        absl::StrCat(run.directory, " has not found yet where FedAvg comes to rest: the run is ",
                     StateName(run.state), "; complete it with the same `leeway run` command"));
  }
  const bool optimum = std::any_of(phases.begin(), phases.end(),
                                   [](const v1::Phase& phase) { return phase.has_optimum(); });
  return absl::FailedPreconditionError(absl::StrCat(
      run.directory, " has no verdict: its config finds ",
      optimum ? "w*, but not where FedAvg comes to rest"
              : "neither the optimum w* nor where FedAvg comes to rest",
      "; add `", kPhasesToAdd, "` to the config (leaving out what it has), and run it again"));
}

}  // namespace

absl::string_view FindingName(Finding finding) {
  switch (finding) {
    case Finding::kHarmless:
      return "harmless";
    case Finding::kConflict:
      return "conflict";
    case Finding::kUncertain:
      return "uncertain";
  }
  return "uncertain";
}

absl::StatusOr<Verdict> Judge(const RunSummary& run) {
  Verdict verdict;
  verdict.evidence = CollectEvidence(run);
  if (verdict.evidence.empty()) return NoFixedPoint(run);
  verdict.largest_harmless_h = LargestHarmless(verdict.evidence);
  if (FirstWith(verdict.evidence, Finding::kConflict) != nullptr) {
    verdict.finding = Finding::kConflict;
  } else if (FirstWith(verdict.evidence, Finding::kUncertain) == nullptr) {
    verdict.finding = Finding::kHarmless;
  }
  verdict.sentence = Sentence(run, verdict);
  WarnOfSteps(run, verdict);
  WarnOfFloor(run, verdict);
  WarnOfGaps(run, verdict);
  WarnOfClients(run, verdict);
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

const v1::ConstantsResult* FindConstants(const RunSummary& run) {
  const v1::ConstantsResult* found = nullptr;
  for (const v1::RoundRecord& record : run.records) {
    if (record.has_constants()) found = &record.constants();
  }
  return found;
}

ProbeEntry FindProbe(const RunSummary& run, uint32_t h, double step_size, uint32_t batch_size) {
  ProbeEntry found;
  for (const v1::RoundRecord& record : run.records) {
    if (record.kind() != v1::PROBE_ROUND || record.point() != v1::Probe::OPTIMUM) continue;
    if (record.batch_size() != batch_size || !SameStepSize(record.step_size(), step_size)) continue;
    if (found.probe != nullptr && record.reports() < found.probe->reports()) continue;
    for (const v1::DriftAtSteps& drift : record.drift()) {
      if (drift.h() == h) found = {&record, &drift};
    }
  }
  return found;
}

}  // namespace leeway
