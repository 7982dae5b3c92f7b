// Aggregator: adds up the reports of one attempt at one round. Four verbs: admit a report
// by its header, add it, say whether the sums can be had, and hand them over.
// Thread-safe: reports are added by whichever thread has received them.
#ifndef LEEWAY_SERVER_AGGREGATOR_H_
#define LEEWAY_SERVER_AGGREGATOR_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/tally.h"
#include "proto/federation.pb.h"

namespace leeway {

class Aggregator {
 public:
  virtual ~Aggregator() = default;
  // Could this report be added, as far as its header tells? Asked before any of its
  // payload is read, and again when it is complete.
  virtual absl::Status Admit(const v1::ReportHeader& header) const = 0;
  // Checks a complete report and adds it. `shares` holds, for each group, those of the
  // header's clients that were assigned to it. On an error nothing has changed.
  virtual absl::Status Add(const v1::ReportHeader& header, absl::Span<const std::byte> payload,
                           absl::Span<const GroupShare> shares) = 0;
  // The sums of what was added could be had now.
  virtual bool CanClose() const = 0;
  // The largest norm of a displacement that was added, of a merged report that of their mean;
  // 0 where the round has a limit for it, or does not ask for one.
  virtual double largest_norm() const { return 0; }
  // The sums. Once, and nothing is added after it.
  virtual Tally Close() = 0;
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_AGGREGATOR_H_
