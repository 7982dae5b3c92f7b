#include "records/evidence.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "records/measured_constants.h"
#include "records/search_bounds.h"
#include "records/theory.h"

namespace leeway {
namespace {

// A gap below this part of the loss before training is rounding.
constexpr double kRounding = 1e-12;
// How much of the harmless threshold unfinished searches may leave open.
constexpr double kOpenPart = 0.1;
// From this condition number on, scaling the columns is the first thing to try.
constexpr double kBadlyConditioned = 1e4;

const v1::Phase* PhaseOf(const RunSummary& run, const v1::RoundRecord& record) {
  const auto phase = static_cast<int>(record.phase());
  return phase < run.config.phases_size() ? &run.config.phases(phase) : nullptr;
}

// What a search ends by at the latest, if it was given no tolerance.
double OptimumTolerance(const RunSummary& run, const v1::RoundRecord& record) {
  const v1::Phase* phase = PhaseOf(run, record);
  const double tolerance = phase == nullptr ? 0 : phase->optimum().tolerance();
  return tolerance > 0 ? tolerance : kOptimumTolerance;
}
double FixedPointTolerance(const RunSummary& run, const v1::RoundRecord& record) {
  const v1::Phase* phase = PhaseOf(run, record);
  const double tolerance = phase == nullptr ? 0 : phase->fixed_point().tolerance();
  return tolerance > 0 ? tolerance : kFixedPointTolerance;
}

// Where the search for w* started; null if there was none.
const v1::RoundRecord* FindStart(const RunSummary& run) {
  const auto start =
      std::find_if(run.records.begin(), run.records.end(),
                   [](const v1::RoundRecord& round) { return round.kind() == v1::OPTIMUM_ROUND; });
  return start == run.records.end() ? nullptr : &*start;
}

// The size of the numbers that losses come from: the loss where the search for w*
// started, if that is larger than the record's.
double LossScale(const RunSummary& run, const v1::RoundRecord& record) {
  const v1::RoundRecord* start = FindStart(run);
  const double loss = std::abs(record.loss());
  return start == nullptr ? loss : std::max(loss, std::abs(start->loss()));
}

// The size of gradients: the root mean square of the clients' where the search for
// w* started.
double GradientScale(const RunSummary& run) {
  const v1::RoundRecord* start = FindStart(run);
  if (start == nullptr) return Evidence::kUnknown;
  return std::sqrt(start->dissimilarity() + start->gradient_norm() * start->gradient_norm());
}

// What the verdict compares gaps with: the last one that is complete or, if none is, the last.
// Null if none was measured.
const v1::RoundRecord* FindYardstick(const RunSummary& run) {
  const v1::RoundRecord* found = nullptr;
  for (const v1::RoundRecord& round : run.records) {
    if (!round.has_yardstick()) continue;
    if (found == nullptr || !std::isnan(round.yardstick().sampling_error())) found = &round;
  }
  return found;
}

// What the loss may be off by without a say in the finding.
double Allowance(const RunSummary& run, const v1::RoundRecord& record, double explained) {
  const double rounding = kRounding * LossScale(run, record);
  const double part = kOpenPart * HarmlessLost(run.config) * explained;
  return part > rounding ? part : rounding;
}

double Convexity(const RunSummary& run) {
  const v1::ConstantsResult* constants = FindConstants(run);
  return constants == nullptr ? 0 : ConvexityOf(*constants);
}

// Whether the search came so near to rest that the rest of the way cannot matter. What the sums
// do not resolve may be there, too.
bool Settled(const RunSummary& run, const v1::RoundRecord& record, double explained) {
  const v1::FixedPointResult& result = record.fixed_point();
  const double norm = result.pseudo_gradient_norm() + result.resolution();
  if (!(Convexity(run) > 0)) {
    return norm <= FixedPointTolerance(run, record) * std::min(1.0, GradientScale(run));
  }
  return OpenLoss(*FindConstants(run), norm, result.step_size(), result.h(), result.distance()) <=
         Allowance(run, record, explained);
}

// Whether F(w*) is so near to the least loss that the rest cannot matter.
bool IsOptimum(const RunSummary& run, const v1::RoundRecord& optimum, const v1::RoundRecord& record,
               double explained) {
  const double norm = optimum.gradient_norm() + record.fixed_point().optimum_resolution();
  const double convexity = Convexity(run);
  if (convexity > 0) return norm * norm / (2 * convexity) <= Allowance(run, record, explained);
  return norm <= OptimumTolerance(run, optimum) * std::max(1.0, GradientScale(run));
}

constexpr char kScaleCommand[] = "`leeway data import csv --scale standard`";

// What to do about a search that leaves too much open: the setting that would let it
// go on, and the scale of the data. A small gradient is far from the optimum where some
// direction is flat beside others, which is most often a matter of the columns' units.
std::string Remedy(const RunSummary& run, absl::string_view setting, bool tolerance_reached) {
  const v1::ConstantsResult* constants = FindConstants(run);
  const double convexity = Convexity(run);
  const double condition = constants == nullptr || !(convexity > 0)
                               ? 0
                               : constants->largest_client_smoothness() / convexity;
  if (condition > kBadlyConditioned) {
    return absl::StrFormat(
        "the condition number kappa = L/mu is %.2g: give all columns of the data a common scale "
        "(%s), or %s",
        condition, kScaleCommand, setting);
  }
  if (!tolerance_reached) return std::string(setting);
  return absl::StrCat(setting, ", or bring the data to a scale near 1 (", kScaleCommand, ")");
}

// That the units of the sums hide more than was measured, and the remedy.
std::string ResolutionText(absl::string_view what, double norm, double resolution) {
  return absl::StrFormat(
      "the sums do not resolve what matters: %s = %.2g is known to %.2g only; leave out "
      "max_update, "
      "so that units fit the data, or bring the data to a scale near 1 (%s)",
      what, norm, resolution, kScaleCommand);
}

// Why there is nothing to compare the gap with; empty if there is.
std::string YardstickDoubt(const RunSummary& run, const v1::RoundRecord* yardstick,
                           const Evidence& evidence) {
  if (yardstick == nullptr || std::isnan(evidence.explained)) {
    return "the records do not have the loss of the best constant answer, which the verdict "
           "compares "
           "with; run it again with this version";
  }
  if (yardstick->reports() < run.clients) {
    return absl::StrFormat(
        "the loss of the best constant answer is that of %d of %d clients; run it again with all "
        "of "
        "them in every round (without cohort.minimum_reports)",
        yardstick->reports(), run.clients);
  }
  if (evidence.gap_in_standard_errors != 0 && !(evidence.explained > 0)) {
    return absl::StrFormat(
        "the best model explains nothing: its loss %.4g is not below that of the best constant "
        "answer, %.4g; add features%s",
        yardstick->yardstick().constant_loss() - evidence.explained,
        yardstick->yardstick().constant_loss(),
        run.config.model().linear_regression().intercept() ||
                !run.config.model().has_linear_regression()
            ? ""
            : ", or an intercept (linear_regression.intercept)");
  }
  return "";
}

// Why what was measured at h proves nothing, and the remedy; empty if it does.
std::string DoubtOf(const RunSummary& run, const v1::RoundRecord& record,
                    const Evidence& evidence) {
  const v1::RoundRecord* optimum = FindOptimum(run, record.round());
  if (optimum == nullptr) return "the records have no round at w*; run it again";
  if (optimum->reports() < PopulationOf(run, *optimum) ||
      record.reports() < PopulationOf(run, record)) {
    return absl::StrFormat(
        "F(w*) is the loss of %d and F(w_H) that of %d of %d clients; run it again with all of "
        "them in every round (without cohort.minimum_reports)",
        optimum->reports(), record.reports(), PopulationOf(run, record));
  }
  const std::string doubt = YardstickDoubt(run, FindYardstick(run), evidence);
  if (!doubt.empty()) return doubt;
  const v1::FixedPointResult& result = record.fixed_point();
  if (!IsOptimum(run, *optimum, record, evidence.explained)) {
    if (result.optimum_resolution() > optimum->gradient_norm()) {
      return ResolutionText("|grad F|", optimum->gradient_norm(), result.optimum_resolution());
    }
    const bool reached = optimum->gradient_norm() <= OptimumTolerance(run, *optimum);
    return absl::StrFormat(
        "the search for w* did not come near enough to the optimum (|grad F| = %.2g); %s",
        optimum->gradient_norm(),
        Remedy(run, reached ? "lower optimum.tolerance" : "raise optimum.max_rounds", reached));
  }
  if (!evidence.settled) {
    if (result.resolution() > evidence.pseudo_gradient_norm) {
      return ResolutionText("|G|", evidence.pseudo_gradient_norm, result.resolution());
    }
    const bool reached = evidence.pseudo_gradient_norm <= FixedPointTolerance(run, record);
    return absl::StrFormat(
        "the search for FedAvg's fixed point did not come to rest (|G| = %.2g); %s",
        evidence.pseudo_gradient_norm,
        Remedy(run,
               reached ? "lower fixed_point.tolerance or its step_size"
                       : "raise fixed_point.max_rounds or lower its step_size",
               reached));
  }
  if (evidence.lost < -HarmlessLost(run.config)) {
    return absl::StrFormat(
        "FedAvg settles below what was taken for the optimum (gap %.3g); lower "
        "optimum.tolerance or raise optimum.max_rounds",
        evidence.gap);
  }
  return "";
}

Finding FindingOf(const RunSummary& run, const Evidence& evidence, double sampling_error_high) {
  if (run.clients < 2 || !evidence.doubt.empty()) return Finding::kUncertain;
  return Decide(run.config, {.lost = evidence.lost,
                             .more_than_chance = evidence.gap > sampling_error_high,
                             .within_sampling_error = evidence.gap < evidence.sampling_error});
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
  evidence.probe_population = PopulationOf(run, *probe.probe);
  const v1::ConstantsResult* constants = FindConstants(run);
  if (constants != nullptr) evidence.floor = DriftFloor(LargestDrift(*probe.drift), *constants);
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
  if (rounding && std::isfinite(standard_error)) {
    evidence.gap_in_standard_errors = 0;
  } else if (standard_error > 0) {
    evidence.gap_in_standard_errors = result.loss_gap() / standard_error;
  }
  evidence.distance_squared = result.distance() * result.distance();
  evidence.pseudo_gradient_norm = result.pseudo_gradient_norm();
  double sampling_error_high = Evidence::kUnknown;
  if (const v1::RoundRecord* yardstick = FindYardstick(run)) {
    const v1::Yardstick& found = yardstick->yardstick();
    evidence.explained = Explained(found, record.loss() - result.loss_gap());
    evidence.sampling_error = found.sampling_error();
    sampling_error_high = found.sampling_error_high();
    if (evidence.explained > 0) evidence.lost = result.loss_gap() / evidence.explained;
    if (rounding) evidence.lost = 0;
  }
  if (result.after_rounds() > 0) {
    evidence.after_rounds = result.after_rounds();
    evidence.loss_after_rounds = result.loss_after_rounds();
    const double gap = result.loss_after_rounds() - (record.loss() - result.loss_gap());
    if (evidence.explained > 0) evidence.lost_after_rounds = gap / evidence.explained;
  }
  evidence.who_pays = FindWhoPays(run, record, result.h());
  evidence.settled = Settled(run, record, evidence.explained);
  evidence.doubt = DoubtOf(run, record, evidence);
  evidence.finding = FindingOf(run, evidence, sampling_error_high);
  AddProbe(run, evidence);
  return evidence;
}

}  // namespace

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

bool SameStepSize(double a, double b) { return std::abs(a - b) <= 1e-9 * std::abs(a); }

const v1::ConstantsResult* FindConstants(const RunSummary& run) {
  const v1::ConstantsResult* found = FindMeasuredConstants(run);
  return found != nullptr && std::isfinite(found->largest_client_smoothness()) ? found : nullptr;
}

std::optional<v1::WhoPays> FindWhoPays(const RunSummary& run, const v1::RoundRecord& record,
                                       uint32_t h) {
  for (const v1::RoundRecord& one : run.records) {
    if (one.round() <= record.round() || one.kind() != record.kind()) continue;
    if (one.phase() != record.phase()) break;
    // The next result is of another search, or of another test.
    if (one.has_fixed_point() || one.has_release()) break;
    if (one.has_who_pays() && one.who_pays().h() == h) return one.who_pays();
  }
  return std::nullopt;
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
