// Meter: is told what the engine does, as it does it. Called from any thread, in the
// middle of the work: it must be quick and must not call back.
#ifndef LEEWAY_RECORDS_METER_H_
#define LEEWAY_RECORDS_METER_H_

#include <cstddef>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/record.pb.h"
#include "proto/run.pb.h"
#include "records/events.h"

namespace leeway {

class Meter {
 public:
  virtual ~Meter() = default;
  // A report was added to the sums.
  virtual void Folded(absl::Duration took, size_t payload_bytes) = 0;
  // A report was refused; the reason is one of few words.
  virtual void Refused(absl::string_view reason) = 0;
  // An order left for one process, with the model in it if that is small.
  virtual void Ordered(size_t bytes) = 0;
  // A large model is fetched by a process.
  virtual void Fetched(size_t bytes) = 0;
  // An event was recorded.
  virtual void Happened(EventKind kind) = 0;
  // A round is durable; took: its transaction.
  virtual void Committed(absl::Duration took, const v1::RoundRecord& record) = 0;
};

}  // namespace leeway

#endif  // LEEWAY_RECORDS_METER_H_
