#include "records/trained.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/plural.h"
#include "records/final_loss.h"

namespace leeway {
namespace {

// A training that lowers its gap by less than this part in the last tenth of its rounds stands
// still.
constexpr double kStill = 0.05;

std::vector<const v1::RoundRecord*> RoundsOfTraining(const RunSummary& run, uint32_t phase) {
  std::vector<const v1::RoundRecord*> rounds;
  for (const v1::RoundRecord& record : run.records) {
    if (record.kind() == v1::TRAIN_ROUND && record.phase() == phase) rounds.push_back(&record);
  }
  return rounds;
}

// What a training has that the verdict's FedAvg has not: full-batch steps of all clients and plain
// averaging.
std::vector<std::string> Differences(const RunSummary& run, const v1::Train& train) {
  std::vector<std::string> all;
  const uint32_t size = run.config.cohort().size();
  if (train.local().batch_size() > 0) {
    all.push_back(absl::StrCat("batches of ", train.local().batch_size()));
  }
  if (size > 0 && size < run.clients) all.push_back(absl::StrCat(size, " clients in a round"));
  if (train.local().algorithm_case() != v1::LocalRule::ALGORITHM_NOT_SET) {
    all.push_back("an algorithm of its own");
  }
  const v1::ServerOptimizer& server = train.server();
  if (server.rate() != 1 || server.momentum() > 0 ||
      server.adaptive_case() != v1::ServerOptimizer::ADAPTIVE_NOT_SET) {
    all.push_back("a server optimizer");
  }
  return all;
}

bool StandsStill(const std::vector<const v1::RoundRecord*>& rounds, const TrainedModel& model) {
  const v1::RoundRecord& before = *rounds[rounds.size() - 1 - rounds.size() / 10];
  return !(before.loss() - model.loss > kStill * model.gap);
}

// Why the training lost more than the verdict says that its number of steps costs.
std::string WhyMore(const RunSummary& run, const v1::Train& train,
                    const std::vector<const v1::RoundRecord*>& rounds, const TrainedModel& model) {
  const std::vector<std::string> differences = Differences(run, train);
  if (differences.empty() || !StandsStill(rounds, model)) {
    return "training has not settled; train longer";
  }
  return absl::StrCat("training stands still there with ", absl::StrJoin(differences, ", "),
                      ", and the verdict is about full-batch steps of all clients with plain "
                      "averaging; take smaller steps, or larger batches and cohorts");
}

void Compare(const RunSummary& run, const v1::Train& train,
             const std::vector<const v1::RoundRecord*>& rounds, const Evidence& evidence,
             TrainedModel& model) {
  if (evidence.finding == Finding::kHarmless && model.lost > ConflictLost(run.config)) {
    model.contradicts = true;
    absl::StrAppend(&model.text, " That contradicts the verdict that H = ", model.h,
                    " is harmless: ", WhyMore(run, train, rounds, model), ".");
  } else if (evidence.finding == Finding::kConflict && model.lost < HarmlessLost(run.config)) {
    model.contradicts = true;
    absl::StrAppendFormat(&model.text,
                          " That contradicts the verdict that H = %d is a conflict: training has "
                          "not come to where it settles, which loses %.2g %%.",
                          model.h, 100 * evidence.lost);
  }
}

}  // namespace

std::vector<TrainedModel> CollectTrained(const RunSummary& run,
                                         const std::vector<Evidence>& evidence) {
  std::vector<TrainedModel> all;
  const v1::RoundRecord* optimum = FindOptimum(run);
  if (optimum == nullptr || evidence.empty() || !(evidence.front().explained > 0)) return all;
  for (int i = 0; i < run.config.phases_size(); ++i) {
    const auto phase = static_cast<uint32_t>(i);
    const std::vector<const v1::RoundRecord*> rounds = RoundsOfTraining(run, phase);
    if (rounds.empty()) continue;
    const v1::RoundRecord& last = *rounds.back();
    const v1::RoundRecord* end = LossAfterTraining(run, phase);
    // The loss of a sample of clients is not that of all of them.
    if (end != nullptr && end->reports() < run.clients) end = nullptr;
    if (end == nullptr && (last.reports() < run.clients || std::isnan(last.loss()))) continue;
    TrainedModel model;
    model.phase = phase;
    model.rounds = last.round_in_phase() - (end == nullptr ? 1 : 0);
    model.h = last.local_steps();
    model.step_size = last.step_size();
    model.loss = end == nullptr ? last.loss() : end->loss();
    model.gap = model.loss - optimum->loss();
    model.lost = model.gap / evidence.front().explained;
    model.text = absl::StrFormat(
        "After %s of training%s the model is %.3g above the optimum and loses %.2g %% of what it "
        "could explain.",
        Counted(model.rounds, "round"),
        model.h == 0
            ? ""
            : absl::StrFormat(" with H = %d local steps of %.3g", model.h, model.step_size),
        model.gap, 100 * std::max(0.0, model.lost));
    for (const Evidence& one : evidence) {
      if (one.h != model.h || !SameStepSize(one.step_size, model.step_size)) continue;
      Compare(run, run.config.phases(i).train(), rounds, one, model);
    }
    all.push_back(std::move(model));
  }
  return all;
}

nlohmann::ordered_json TrainedJson(const TrainedModel& one) {
  return {{"phase", one.phase}, {"rounds", one.rounds},
          {"h", one.h},         {"step_size", one.step_size},
          {"loss", one.loss},   {"gap", one.gap},
          {"lost", one.lost},   {"contradicts_verdict", one.contradicts},
          {"text", one.text}};
}

}  // namespace leeway
