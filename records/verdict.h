// Whether heterogeneity hurts FedAvg on a run's data, and up to which number of
// local steps. It rests on where FedAvg comes to rest: the loss gap of its fixed
// point over the optimum, as a share of what the model explains; in a run without
// fixed points, on its release tests (the rule is in records/rule.h). Pure functions of a
// run's records and config.
#ifndef LEEWAY_RECORDS_VERDICT_H_
#define LEEWAY_RECORDS_VERDICT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "records/evidence.h"
#include "records/release_evidence.h"
#include "records/show.h"
#include "records/trained.h"

namespace leeway {

struct Verdict {
  Finding finding = Finding::kUncertain;
  std::optional<uint32_t> largest_harmless_h;  // it and all smaller listed are harmless
  std::string sentence;
  std::vector<Evidence> evidence;         // by h, then step size; empty without fixed points
  std::vector<ReleaseEvidence> releases;  // by h, then step size
  std::vector<uint32_t> missing_h;        // listed in the config, but without a result; by size
  std::vector<TrainedModel> trained;      // by phase
  // Who pays: one sentence, of the smallest H that is a conflict or else of the largest. Empty if
  // that was not counted.
  std::string who_pays;
  std::vector<std::string> warnings;
};

// FailedPrecondition, with the remedy, if the run has neither found a fixed point nor completed
// a release test.
absl::StatusOr<Verdict> Judge(const RunSummary& run);

// If the config has a step size with which local steps diverge: says so, with the
// remedy, as the end of a sentence. Else, or if L was not measured, empty.
std::string DivergenceText(const RunSummary& run);

// One sentence for every training phase that ended with a higher loss than it began
// with, and the remedy. A phase that starts at w* cannot but do so and is left out.
std::vector<std::string> RisingLosses(const RunSummary& run);

}  // namespace leeway

#endif  // LEEWAY_RECORDS_VERDICT_H_
