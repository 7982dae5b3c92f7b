// The verdict's rule, for fixed points and release tests alike (docs/measures.md, 7): how much
// local steps lose of what the model explains, and whether that is more than chance. Pure
// functions.
#ifndef LEEWAY_RECORDS_RULE_H_
#define LEEWAY_RECORDS_RULE_H_

#include "absl/strings/string_view.h"
#include "proto/record.pb.h"
#include "proto/run.pb.h"

namespace leeway {

enum class Finding { kHarmless, kUncertain, kConflict };

// "harmless", "uncertain", "conflict".
absl::string_view FindingName(Finding finding);

// The config's thresholds, as shares.
double HarmlessLost(const v1::RunConfig& config);
double ConflictLost(const v1::RunConfig& config);

// What the model explains: how much lower its least loss is than that of the best constant answer.
double Explained(const v1::Yardstick& yardstick, double least_loss);

// What local steps cost.
struct Cost {
  double lost = 0;                // the share of what the model explains
  bool surely_small = true;       // a share below harmless_lost cannot be one above conflict_lost
  bool more_than_chance = false;  // another sample could not undo it
  bool within_sampling_error = false;  // the optimum itself is not known better than this
};

// Conflict: more than conflict_lost, and more than chance. Harmless: less than harmless_lost, or
// between the two and within the sampling error. A share that is not known is uncertain.
Finding Decide(const v1::RunConfig& config, const Cost& cost);

}  // namespace leeway

#endif  // LEEWAY_RECORDS_RULE_H_
