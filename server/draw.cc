#include "server/draw.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "common/sampler.h"
#include "common/sums.h"
#include "server/measures.h"

namespace leeway {
namespace {

// All evaluators take part in an evaluation, in a group of their own. The round
// does not need them: it counts without one that is gone at the deadline.
void AddEvaluators(const Roster& roster, RoundSpec& spec) {
  spec.groups.assign(spec.cohort.size(), kClientGroup);
  for (const ClientIndex evaluator : roster.Evaluators()) {
    spec.cohort.push_back(evaluator);
    spec.groups.push_back(kEvaluatorGroup);
    ++spec.evaluators;
  }
}

// The cohort and its reserves, by lot. `attempt` and `round` say by which.
void DrawByLot(uint64_t seed, uint64_t round, uint32_t attempt, uint32_t asked,
               const std::vector<ClientIndex>& eligible, bool reserves, RoundSpec& spec) {
  const auto population = static_cast<uint32_t>(eligible.size());
  for (const uint32_t i : SampleCohort(seed, round, attempt, population, asked)) {
    spec.cohort.push_back(eligible[i]);
  }
  if (!reserves) return;
  for (const uint32_t i : DrawReserves(seed, round, attempt, population, asked)) {
    spec.reserves.push_back(eligible[i]);
  }
}

// Those of an earlier round's cohort that can be asked again. Nobody stands in for another: what
// the rounds are compared for is the same clients.
std::vector<ClientIndex> AskAgain(const std::vector<ClientIndex>& before,
                                  const std::vector<ClientIndex>& eligible) {
  std::vector<ClientIndex> cohort;
  std::set_intersection(before.begin(), before.end(), eligible.begin(), eligible.end(),
                        std::back_inserter(cohort));
  return cohort;
}

}  // namespace

absl::StatusOr<RoundSpec> DrawRound(const v1::RunConfig& config, const Roster& roster,
                                    const RoundPlan& plan, uint32_t attempt, absl::Time now) {
  const v1::Cohort& rule = config.cohort();
  std::vector<ClientIndex> others;  // without those that are set aside
  if (!plan.set_aside.empty()) {
    others = roster.eligible();
    std::erase_if(others, [&](ClientIndex i) { return plan.set_aside.contains(i); });
  }
  const std::vector<ClientIndex>& eligible = others.empty() ? roster.eligible() : others;
  if (eligible.empty()) return absl::FailedPreconditionError("all clients are quarantined");
  RoundSpec spec;
  spec.round = plan.record.round();
  spec.attempt = attempt;
  spec.opened = now;
  spec.deadline = now + absl::Seconds(rule.deadline_seconds());
  spec.return_time = absl::Seconds(rule.return_seconds());
  spec.by_examples = plan.task.weighting() == v1::EXAMPLES;
  spec.group_count = plan.task.groups();
  spec.states_since = plan.states_since;
  const uint64_t drawn = spec.round - plan.rounds_aside;
  uint32_t wanted = 0;
  if (plan.cohort_of_rounds_ago > 0) {
    spec.cohort = AskAgain(plan.cohort, eligible);
    if (spec.cohort.empty()) {
      return absl::FailedPreconditionError("all clients that this test began with are quarantined");
    }
    wanted = static_cast<uint32_t>(spec.cohort.size());
  } else {
    const auto population = static_cast<uint32_t>(eligible.size());
    const bool trains = plan.record.kind() == v1::TRAIN_ROUND;
    wanted = plan.sample == 0 ? population : std::min(plan.sample, population);
    const uint32_t asked = std::min(population, wanted + (trains ? rule.spare() : 0));
    if (asked > wanted) spec.enough = wanted;
    if (rule.replace_after_seconds() > 0) {
      spec.replace_after = absl::Seconds(rule.replace_after_seconds());
    }
    DrawByLot(config.seed(), drawn, attempt, asked, eligible, rule.replace_after_seconds() > 0,
              spec);
  }
  spec.minimum = rule.minimum_reports() == 0 ? wanted : std::min(rule.minimum_reports(), wanted);
  if (spec.group_count > 1) {
    spec.groups = DrawGroups(config.seed(), drawn, attempt,
                             static_cast<uint32_t>(spec.cohort.size()), spec.group_count);
  }
  if (Asks(plan.task, kTestExamples)) AddEvaluators(roster, spec);
  return spec;
}

v1::Task CompleteTask(const v1::RunConfig& config, const Roster& roster, const RoundPlan& plan,
                      const RoundSpec& spec) {
  uint64_t weight = 0;
  if (spec.by_examples) {  // one who steps in may weigh more than the one who is gone
    for (const ClientIndex c : spec.cohort) weight += roster.clients()[c].examples;
    for (const ClientIndex c : spec.reserves) weight += roster.clients()[c].examples;
  } else {
    weight = spec.cohort.size();
  }
  v1::Task task = plan.task;
  SetUnits(weight, task);
  if (Asks(task, kDisplacement) && task.max_norm() == 0) {
    task.set_max_norm(config.limits().max_norm());
    task.set_clip(config.limits().norm_policy() == v1::CLIP);
  }
  return task;
}

}  // namespace leeway
