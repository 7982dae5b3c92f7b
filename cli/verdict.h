// Whether heterogeneity hurts FedAvg on a run's data, and up to which number of
// local steps. It rests on where FedAvg comes to rest: the loss gap of its fixed
// point over the optimum, in standard errors of the loss over clients (the rule is
// in docs/measures.md). Pure functions of a run's records and config.
#ifndef LEEWAY_CLI_VERDICT_H_
#define LEEWAY_CLI_VERDICT_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/show.h"
#include "proto/run.pb.h"

namespace leeway {

enum class Finding { kHarmless, kUncertain, kConflict };

// "harmless", "uncertain", "conflict".
absl::string_view FindingName(Finding finding);

// With fewer clients their spread is too little known to call a gap harmless.
inline constexpr uint64_t kFewClients = 10;

// What is known of one number of local steps. NaN: not measured.
struct Evidence {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  uint32_t h = 0;
  double step_size = kUnknown;
  double gap = kUnknown;                     // F(w_H) - F(w*)
  double gap_in_standard_errors = kUnknown;  // of F(w*) over clients
  double distance_squared = kUnknown;        // |w_H - w*|^2
  double pseudo_gradient_norm = kUnknown;    // |G(w_H)|
  bool settled = false;                      // the search came to rest
  Finding finding = Finding::kUncertain;

  // From a full-batch probe at w* with the same h and step size.
  uint32_t probe_clients = 0;  // 0: there is none
  double average_drift_squared = kUnknown;
  double unbiased_drift_squared = kUnknown;
  double drift_bound = kUnknown;
  double interval_low = kUnknown;
  double interval_high = kUnknown;
  double floor = kUnknown;  // 20 rho^2 / mu^2 (paper, Theorem 2)
};

struct Verdict {
  Finding finding = Finding::kUncertain;
  std::optional<uint32_t> largest_harmless_h;  // it and all smaller listed are harmless
  std::string sentence;
  std::vector<Evidence> evidence;  // by h, then step size
  std::vector<std::string> warnings;
};

// FailedPrecondition, with the remedy, if the run has found no fixed point.
absl::StatusOr<Verdict> Judge(const RunSummary& run);

// If the config has a step size with which local steps diverge: says so, with the
// remedy, as the end of a sentence. Else, or if L was not measured, empty.
std::string DivergenceText(const RunSummary& run);

// The constants that were measured last; null if none were.
const v1::ConstantsResult* FindConstants(const RunSummary& run);

// A probe at w* and the entry of its drift for h local steps with this step size
// and batch size (0: full batch); of several the one with most clients. Null if
// there is none.
struct ProbeEntry {
  const v1::RoundRecord* probe = nullptr;
  const v1::DriftAtSteps* drift = nullptr;
};
ProbeEntry FindProbe(const RunSummary& run, uint32_t h, double step_size, uint32_t batch_size);

}  // namespace leeway

#endif  // LEEWAY_CLI_VERDICT_H_
