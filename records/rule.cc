#include "records/rule.h"

namespace leeway {

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

// Defaults for configs that were stored before the thresholds were.
double HarmlessLost(const v1::RunConfig& config) {
  return config.harmless_lost() > 0 ? config.harmless_lost() : 0.01;
}
double ConflictLost(const v1::RunConfig& config) {
  return config.conflict_lost() > 0 ? config.conflict_lost() : 0.03;
}

double Explained(const v1::Yardstick& yardstick, double least_loss) {
  return yardstick.constant_loss() - least_loss;
}

Finding Decide(const v1::RunConfig& config, const Cost& cost) {
  if (cost.lost > ConflictLost(config)) {
    return cost.more_than_chance ? Finding::kConflict : Finding::kUncertain;
  }
  if (cost.lost < HarmlessLost(config) && cost.surely_small) return Finding::kHarmless;
  return cost.lost <= ConflictLost(config) && cost.within_sampling_error ? Finding::kHarmless
                                                                         : Finding::kUncertain;
}

}  // namespace leeway
