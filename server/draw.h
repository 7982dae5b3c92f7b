// Who is asked in a round, and what exactly. Pure functions of the configuration, the
// roster and the script's plan, so a restarted server asks the same again.
#ifndef LEEWAY_SERVER_DRAW_H_
#define LEEWAY_SERVER_DRAW_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/federation.pb.h"
#include "proto/run.pb.h"
#include "server/phase.h"
#include "server/roster.h"
#include "server/round.h"

namespace leeway {

// The cohort, its groups and reserves, and when the round ends. FailedPrecondition if
// nobody is left to be drawn.
absl::StatusOr<RoundSpec> DrawRound(const v1::RunConfig& config, const Roster& roster,
                                    const RoundPlan& plan, uint32_t attempt, absl::Time now);

// The plan's task with what depends on the cohort: the resolution of its sums, which must
// hold whatever those who are asked, or who may step in for them, can weigh together.
v1::Task CompleteTask(const v1::RunConfig& config, const Roster& roster, const RoundPlan& plan,
                      const RoundSpec& spec);

}  // namespace leeway

#endif  // LEEWAY_SERVER_DRAW_H_
