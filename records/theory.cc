#include "records/theory.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "records/evidence.h"
#include "records/network_config.h"

namespace leeway {
namespace {

// An automatic step size sits on the limit itself.
constexpr double kSlack = 1 + 1e-9;

constexpr double kLargestAlpha = 0.25;         // Theorem 2
constexpr double kLargestProvenAlpha = 0.125;  // its proof in the appendix

absl::Status Missing(const std::string& what) { return absl::FailedPreconditionError(what); }

// The terms of stochastic local steps.
void AddNoise(const v1::RoundRecord& round, const ProbeEntry& probe, Theorem2& theorem) {
  const double variance =
      probe.drift == nullptr ? std::nan("") : probe.drift->pseudo_gradient_variance();
  const double bias = probe.drift == nullptr ? std::nan("") : probe.drift->iterate_bias_squared();
  if (!std::isfinite(variance) || !std::isfinite(bias)) {
    theorem.broken.push_back(absl::StrFormat(
        "the variance and iterate bias of batches of %d are not in it: they were not measured; add "
        "a probe at OPTIMUM with steps %d, batch_size %d and repeats",
        round.batch_size(), theorem.h, round.batch_size()));
    return;
  }
  theorem.variance_term = 2 * theorem.alpha * theorem.eta * theorem.h / theorem.mu * variance;
  theorem.bias_term = 20 / (theorem.mu * theorem.mu) * std::max(0.0, bias);
  theorem.notes.push_back(
      "the theorem takes the largest variance and iterate bias over all w; those here are the ones "
      "at w*");
}

void CheckConditions(const RunSummary& run, const v1::RoundRecord& round,
                     const v1::ConstantsResult& constants, Theorem2& theorem) {
  if (theorem.alpha > kLargestAlpha * kSlack) {
    theorem.broken.push_back(absl::StrFormat("the server rate α = %g is above 1/4", theorem.alpha));
  } else if (theorem.alpha > kLargestProvenAlpha * kSlack) {
    theorem.notes.push_back(absl::StrFormat(
        "the server rate α = %g is above the 1/8 that the proof in the appendix uses",
        theorem.alpha));
  }
  const std::string step_size = StepSizeProblem(theorem.eta, theorem.h, constants);
  if (!step_size.empty()) theorem.broken.push_back(step_size);
  if (round.sampled() > 0 && round.sampled() < PopulationOf(run, round)) {
    theorem.broken.push_back(absl::StrFormat(
        "only %d of %d clients train in a round; the variance that this adds is not in the bound",
        round.sampled(), PopulationOf(run, round)));
  }
  if (run.config.encoding() != v1::EXACT) {
    theorem.broken.push_back(absl::StrCat("the rounding of encoding ",
                                          v1::WireEncoding_Name(run.config.encoding()),
                                          " is not in the bound"));
  }
  if (run.config.limits().max_norm() > 0 && run.config.limits().norm_policy() == v1::CLIP) {
    theorem.broken.push_back(
        absl::StrFormat("the theorem does not cover updates that are clipped (limits.max_norm %g)",
                        run.config.limits().max_norm()));
  }
  if (static_cast<int>(round.phase()) >= run.config.phases_size()) return;
  const v1::Train& train = run.config.phases(static_cast<int>(round.phase())).train();
  if (train.server().adaptive_case() != v1::ServerOptimizer::ADAPTIVE_NOT_SET) {
    theorem.broken.push_back("the theorem does not cover adaptive server optimizers");
  }
  if (train.local().algorithm_case() != v1::LocalRule::ALGORITHM_NOT_SET) {
    theorem.broken.push_back("the theorem covers plain local gradient steps");
  }
  if (train.server().momentum() > 0) {
    theorem.broken.push_back("the theorem does not cover server momentum");
  }
}

// What to know of the floor: an estimate, or above where the run began.
void AddFloorNotes(const RunSummary& run, const v1::RoundRecord& probe, Theorem2& theorem) {
  if (probe.reports() < PopulationOf(run, probe)) {
    theorem.notes.push_back(
        absl::StrFormat("ρ² is an estimate from %d of %d clients; the floor takes the upper end of "
                        "its 95 %% interval",
                        probe.reports(), PopulationOf(run, probe)));
  }
  if (theorem.floor > theorem.initial) {
    theorem.notes.push_back(
        absl::StrFormat("the bound says nothing here: its floor 20ρ²/μ² = %.2g is above ‖w₀ − w*‖² "
                        "= %.2g, for some "
                        "client's μ is only %.2g",
                        theorem.floor, theorem.initial, theorem.mu));
  }
}

}  // namespace

double Theorem2::At(double t) const {
  return std::pow(rate, t) * initial + variance_term + bias_term + floor;
}

absl::StatusOr<Theorem2> TheoryOf(const RunSummary& run,
                                  const std::vector<v1::RoundRecord>& rounds) {
  const v1::RoundRecord& first = rounds.front();
  if (IsNetwork(run.config.model())) {
    return Missing(absl::StrCat("the theorem is for strongly convex losses, and the model is a ",
                                "network (", ModelName(run.config.model()), ")"));
  }
  const v1::ConstantsResult* constants = FindConstants(run);
  if (constants == nullptr) {
    return Missing(
        "L and μ are not known; add `phases { constants { point: OPTIMUM } }` after "
        "`optimum`");
  }
  Theorem2 theorem;
  theorem.alpha = first.server_rate();
  theorem.eta = first.step_size();
  theorem.h = first.local_steps();
  theorem.mu = constants->smallest_client_convexity();
  theorem.smoothness = constants->largest_client_smoothness();
  if (!(theorem.mu > 0)) {
    return Missing(
        absl::StrFormat("the theorem needs strongly convex clients, but the smallest μ of any "
                        "client is %.3g; add a "
                        "penalty (l2) to the model",
                        theorem.mu));
  }
  if (theorem.h == 0) return Missing("clients ran epochs, so H differs by client");
  if (first.round_in_phase() != 1 || !std::isfinite(first.distance_squared())) {
    return Missing("the distance to w* is not known; put an `optimum` phase before `train`");
  }
  theorem.initial = first.distance_squared();
  const ProbeEntry exact = FindProbe(run, theorem.h, theorem.eta, 0);
  if (exact.drift == nullptr) {
    return Missing(absl::StrFormat(
        "ρ is not known for H = %d and step size %g; add `phases { probe { point: OPTIMUM "
        "step_size: %g steps: [%d] } }`",
        theorem.h, theorem.eta, theorem.eta, theorem.h));
  }
  theorem.floor = DriftFloor(LargestDrift(*exact.drift), *constants);
  if (std::isnan(theorem.floor)) {
    return Missing(absl::StrFormat(
        "ρ is not known for H = %d and step size %g: a sample of %d of %d clients "
        "is too small to tell; probe all of them, or more (probe.clients)",
        theorem.h, theorem.eta, exact.probe->reports(), PopulationOf(run, *exact.probe)));
  }
  AddFloorNotes(run, *exact.probe, theorem);
  const double shrink = theorem.alpha * theorem.eta * theorem.h * theorem.mu / 2;
  theorem.rate = std::max(0.0, 1 - shrink);
  if (first.batch_size() > 0) {
    AddNoise(first, FindProbe(run, theorem.h, theorem.eta, first.batch_size()), theorem);
  }
  CheckConditions(run, first, *constants, theorem);
  return theorem;
}

double DriftFloor(double drift_squared, const v1::ConstantsResult& constants) {
  const double mu = constants.smallest_client_convexity();
  if (!(mu > 0) || !(drift_squared >= 0)) return std::numeric_limits<double>::quiet_NaN();
  return 20 * drift_squared / (mu * mu);
}

std::string StepSizeProblem(double eta, uint32_t h, const v1::ConstantsResult& constants) {
  const double smoothness = constants.largest_client_smoothness();
  const double mu = constants.smallest_client_convexity();
  if (eta * smoothness > 2 * kSlack) {
    return absl::StrFormat(
        "the step size %.4g is above 2/L = %.4g of the steepest client, where local steps diverge; "
        "lower it to at most 1/L = %.4g",
        eta, 2 / smoothness, 1 / smoothness);
  }
  if (eta * smoothness > kSlack) {
    return absl::StrFormat("the step size %.4g is above 1/L = %.4g of the steepest client", eta,
                           1 / smoothness);
  }
  if (mu > 0 && eta * mu * h > kSlack) {
    return absl::StrFormat("at H = %d the step size %.4g is above 1/(μH) = %.4g", h, eta,
                           1 / (mu * h));
  }
  return "";
}

}  // namespace leeway
