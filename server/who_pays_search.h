// Counts who pays for local steps: deciles over clients of how their loss, and their accuracy
// where they have labels and a test part, differ between two models. All of them from the same
// kWhoPaysRounds rounds. A value.
#ifndef LEEWAY_SERVER_WHO_PAYS_SEARCH_H_
#define LEEWAY_SERVER_WHO_PAYS_SEARCH_H_

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/model.h"
#include "common/tally.h"
#include "proto/record.pb.h"
#include "server/decile_search.h"
#include "server/phase.h"

namespace leeway {

class WhoPaysSearch {
 public:
  // `loss` is the size of the losses that are compared.
  WhoPaysSearch(double loss, const RunContext& run);

  bool done() const { return losses_.done(); }
  // Makes the round one of counting: clients compare `local`, which local steps led to, with
  // `other`.
  void Ask(const ModelPtr& local, const ModelPtr& other, RoundPlan& plan) const;
  // The last round's record gets the result.
  void Absorb(uint32_t h, const Tally& tally, RoundPlan& plan);

  std::vector<double> Save() const;
  absl::Status Restore(absl::Span<const double> state, const RunContext& run);

 private:
  double largest_;
  DecileSearch losses_;
  std::optional<DecileSearch> accuracies_;  // of a classifier that Leeway contains
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_WHO_PAYS_SEARCH_H_
