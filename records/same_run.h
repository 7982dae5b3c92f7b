// Which changes of its configuration a run that is resumed may have.
#ifndef LEEWAY_RECORDS_SAME_RUN_H_
#define LEEWAY_RECORDS_SAME_RUN_H_

#include <string>

#include "proto/run.pb.h"

namespace leeway {

// For people, in messages.
inline constexpr char kMayChange[] =
    "name, limits and when a round ends (cohort.minimum_reports, deadline_seconds, attempts, "
    "replace_after_seconds, return_seconds, gather_seconds) and who may come or leaves "
    "(cohort.closed, "
    "absent_after_seconds) may be changed";

struct ConfigChanges {
  // The first field that may not differ, with both values: "seed is 1 there and 2 here".
  // Empty: the run can go on with the other configuration.
  std::string refused;
  // All that differ and may: "cohort.deadline_seconds from 5 to 60; ...". Empty: none.
  std::string allowed;
};

// Between the configuration of a stored run and the one that was given.
ConfigChanges CompareConfigs(v1::RunConfig stored, v1::RunConfig given);

}  // namespace leeway

#endif  // LEEWAY_RECORDS_SAME_RUN_H_
