// PlainAggregator: sees every report, checks its values and adds it to one Tally, so that
// memory does not grow with the number of clients. Thread-safe; one report is added at a
// time, by all of the workers.
#ifndef LEEWAY_SERVER_PLAIN_AGGREGATOR_H_
#define LEEWAY_SERVER_PLAIN_AGGREGATOR_H_

#include <string>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "common/sums.h"
#include "common/tally.h"
#include "common/wire.h"
#include "common/workers.h"
#include "records/meter.h"
#include "server/aggregator.h"

namespace leeway {

class PlainAggregator : public Aggregator {
 public:
  struct Spec {
    TaskSums sums;                        // that the task asks for
    std::string base_sha256;              // the model that the work starts from
    v1::Encoding encoding = v1::FLOAT64;  // of a single client's report
    ReportLimits limits;
  };
  // `memory` is where the sums are kept: a tally of an earlier round spares the time to
  // get pages anew. Workers and meter are optional and outlive the aggregator.
  PlainAggregator(Spec spec, Tally memory, Workers* workers, Meter* meter);

  absl::Status Admit(const v1::ReportHeader& header) const override;
  absl::Status Add(const v1::ReportHeader& header, absl::Span<const std::byte> payload,
                   absl::Span<const GroupShare> shares) override;
  bool CanClose() const override { return true; }
  double largest_norm() const override;
  Tally Close() override;

 private:
  const Spec spec_;
  Workers* const workers_;
  Meter* const meter_;
  const bool wants_norms_;  // because it has counts of norms and no limit
  mutable Mutex mu_;
  Tally tally_ ABSL_GUARDED_BY(mu_);
  double largest_norm_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_PLAIN_AGGREGATOR_H_
