// What a run has measured of each number of local steps, and what follows from it:
// harmless, a conflict, or why there is not enough evidence (the rule is in records/rule.h).
// Pure functions of a run's records and config.
#ifndef LEEWAY_RECORDS_EVIDENCE_H_
#define LEEWAY_RECORDS_EVIDENCE_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "proto/record.pb.h"
#include "proto/run.pb.h"
#include "records/rule.h"
#include "records/show.h"

namespace leeway {

// What is known of one number of local steps. NaN: not measured.
struct Evidence {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  uint32_t h = 0;
  double step_size = kUnknown;
  double gap = kUnknown;                     // F(w_H) - F(w*)
  double lost = kUnknown;                    // the gap's share of what the model explains
  double explained = kUnknown;               // F_const - F(w*)
  double sampling_error = kUnknown;          // what w* itself owes to the sample of clients
  double gap_in_standard_errors = kUnknown;  // of F(w*) over clients
  double distance_squared = kUnknown;        // |w_H - w*|^2
  double pseudo_gradient_norm = kUnknown;    // |G(w_H)|
  bool settled = false;                      // the search came to rest
  // With as many rounds from the initial model; 0: not measured.
  uint32_t after_rounds = 0;
  double loss_after_rounds = kUnknown;
  double lost_after_rounds = kUnknown;  // its gap's share of what the model explains
  std::optional<v1::WhoPays> who_pays;
  Finding finding = Finding::kUncertain;
  std::string doubt;  // why the gap proves nothing, and the remedy; empty: it does

  // From a full-batch probe at w* with the same h and step size.
  uint32_t probe_clients = 0;  // 0: there is none
  uint64_t probe_population = 0;
  double average_drift_squared = kUnknown;
  double unbiased_drift_squared = kUnknown;
  double drift_bound = kUnknown;
  double interval_low = kUnknown;
  double interval_high = kUnknown;
  double floor = kUnknown;  // 20 rho^2 / mu^2 (paper, Theorem 2), of a sample from above
};

// By h, then step size; of the same measured twice, the last.
std::vector<Evidence> CollectEvidence(const RunSummary& run);

// True if a and b differ by rounding alone.
bool SameStepSize(double a, double b);

// The constants that were measured last; null if none were.
const v1::ConstantsResult* FindConstants(const RunSummary& run);

// Who pays for the local steps of this record's fixed point or release test; nothing if that was
// not counted (yet).
std::optional<v1::WhoPays> FindWhoPays(const RunSummary& run, const v1::RoundRecord& record,
                                       uint32_t h);

// A probe at w* and the entry of its drift for h local steps with this step size
// and batch size (0: full batch); of several the one with most clients. Null if
// there is none.
struct ProbeEntry {
  const v1::RoundRecord* probe = nullptr;
  const v1::DriftAtSteps* drift = nullptr;
};
ProbeEntry FindProbe(const RunSummary& run, uint32_t h, double step_size, uint32_t batch_size);

}  // namespace leeway

#endif  // LEEWAY_RECORDS_EVIDENCE_H_
