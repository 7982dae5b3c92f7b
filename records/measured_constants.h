// The constants that a run has measured last, whatever they hold: those of networks have no L and
// mu of single clients. What rests on these goes by FindConstants of records/evidence.h.
#ifndef LEEWAY_RECORDS_MEASURED_CONSTANTS_H_
#define LEEWAY_RECORDS_MEASURED_CONSTANTS_H_

#include "proto/record.pb.h"
#include "records/show.h"

namespace leeway {

// Null if there are none.
inline const v1::ConstantsResult* FindMeasuredConstants(const RunSummary& run) {
  const v1::ConstantsResult* found = nullptr;
  for (const v1::RoundRecord& record : run.records) {
    if (record.has_constants()) found = &record.constants();
  }
  return found;
}

}  // namespace leeway

#endif  // LEEWAY_RECORDS_MEASURED_CONSTANTS_H_
