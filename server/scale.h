// What the sums of a run can hold: the largest coordinate that is accepted of a client, from which
// a sum's unit follows. Where the config gives max_update, that decides; else, once a scale round
// has measured how large gradients, Hessians and losses are, what they need. Pure functions.
#ifndef LEEWAY_SERVER_SCALE_H_
#define LEEWAY_SERVER_SCALE_H_

#include "common/tally.h"
#include "proto/run.pb.h"
#include "server/phase.h"

namespace leeway {

// max_update, or its default.
double MaxUpdate(const v1::RunConfig& config);

// Whether the run begins with a scale round: of a convex model, without a max_update, if it
// measures an optimum, constants or fixed points.
bool NeedsScale(const RunContext& run);
RoundPlan PlanScale(const RunContext& run);
v1::Scale ReadScale(const RoundPlan& plan, const Tally& tally);

double LargestHessian(const RunContext& run);
// `usual` is what is accepted where the data are of a usual scale, `step` how far from where
// gradients are small a search may try.
double LargestGradient(const RunContext& run, double usual, double step = 0);
// Of local steps by this rule.
double LargestDisplacement(const RunContext& run, const v1::LocalRule& rule);

// How far rounding to the units of its sum can have moved the mean of this vector, at most, as a
// norm.
double ResolutionOf(const v1::Task& task, const Tally& tally, absl::string_view name);

}  // namespace leeway

#endif  // LEEWAY_SERVER_SCALE_H_
