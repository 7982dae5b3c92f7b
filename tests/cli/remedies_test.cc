#include "cli/remedies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/control.h"
#include "cli/remedy_configs.h"
#include "records/config.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

RemedyOutcome Outcome(const char* name, uint32_t winners, double difference, double error) {
  RemedyOutcome one;
  one.name = name;
  v1::Comparison& paired = one.against_fedavg.emplace();
  paired.set_clients(10);
  paired.set_winners(winners);
  paired.set_losers(10 - winners);
  paired.set_difference(difference);
  paired.set_standard_error(error);
  return one;
}

TEST(RemediesTest, RecommendsTheLargestSureGainOfMostClients) {
  std::vector<RemedyOutcome> all = {RemedyOutcome{}, Outcome("scaffold", 8, -0.2, 0.05),
                                    Outcome("fedprox", 4, -0.5, 0.1),  // most clients lose
                                    Outcome("adam", 9, -0.4, 0.3),     // may be chance
                                    Outcome("few_steps", 7, -0.1, 0.01)};
  all[0].name = kFedAvg;
  ASSERT_NE(Recommended(all), nullptr);
  EXPECT_EQ(Recommended(all)->name, "scaffold");
  EXPECT_THAT(RemedySentence(all), StartsWith("Use SCAFFOLD"));
  EXPECT_THAT(RemedySentence(all), HasSubstr("8 of 10 clients"));
  all[1].failure = "diverged";
  EXPECT_EQ(Recommended(all)->name, "few_steps");
  EXPECT_THAT(RemedyText(all), HasSubstr("failed: diverged"));
  EXPECT_THAT(RemedySentence({all[0], all[2], all[3]}), StartsWith("Stay with FedAvg"));
}

RunSummary Trained(const char* local) {
  RunSummary run;
  run.directory = "runs/x";
  run.config = *ParseConfig(
      absl::StrCat("model { softmax_regression { classes: 3 } } phases { constants {} } phases { ",
                   "train { rounds: 7 local { ", local, " } } }"),
      "c");
  run.roster = {{"a", 10, 2}, {"b", 25, 0}};
  v1::RoundRecord record;
  record.set_kind(v1::TRAIN_ROUND);
  record.set_phase(1);
  record.set_step_size(0.25);
  run.records = {record};
  return run;
}

TEST(RemediesTest, EveryRemedyIsAConfigInOrderOfTheSameBudget) {
  for (const char* local : {"auto_step_size: true steps: 4", "step_size: 1 epochs: 2 batch_size: 5",
                            "auto_step_size: true auto_steps { largest: 8 }"}) {
    const auto basis = BasisOf(Trained(local), 0.5);
    ASSERT_TRUE(basis.ok()) << basis.status();
    std::vector<std::string> names = {kFedAvg};
    for (const Remedy& remedy : Remedies()) {
      if (remedy.name != std::string(kFineTune)) names.push_back(remedy.name);
    }
    for (const std::string& name : names) {
      v1::RunConfig config = RemedyConfig(*basis, name, "../fedavg/models/final.safetensors");
      CompleteConfig(config);
      EXPECT_TRUE(CheckConfig(config).ok()) << name << ": " << CheckConfig(config);
      uint32_t rounds = 0;
      for (const v1::Phase& phase : config.phases()) {
        if (!phase.has_train()) continue;
        rounds += phase.train().rounds();
        EXPECT_EQ(phase.train().local().step_size(), 0.25) << name;
      }
      EXPECT_EQ(rounds, 7u) << name;
    }
  }
}

TEST(RemediesTest, FedNovaIsWorthTryingWhereStepsDiffer) {
  EXPECT_THAT(DefaultRemedies(*BasisOf(Trained("step_size: 1 epochs: 1 batch_size: 5"), 1)),
              ::testing::Contains("fednova"));
  EXPECT_THAT(DefaultRemedies(*BasisOf(Trained("step_size: 1 steps: 5"), 1)),
              ::testing::Not(::testing::Contains("fednova")));
}

Verdict Found(Finding finding) {
  Verdict verdict;
  verdict.finding = finding;
  Evidence one;
  one.h = 10;
  one.gap = 0.125;
  one.finding = finding;
  verdict.evidence = {one};
  return verdict;
}

TEST(ControlTest, OnlyWhatShufflingTakesAwayIsBetweenTheClients) {
  const std::string gone = ControlText(Found(Finding::kConflict), Found(Finding::kHarmless));
  EXPECT_THAT(gone, HasSubstr("The conflict is between the clients"));
  EXPECT_THAT(gone, HasSubstr("0.125 conflict          0.125 harmless"));
  EXPECT_THAT(ControlText(Found(Finding::kConflict), Found(Finding::kConflict)),
              HasSubstr("does not come from how the clients differ"));
  EXPECT_THAT(ControlText(Found(Finding::kConflict), Found(Finding::kUncertain)),
              HasSubstr("not enough evidence on the shuffled split"));
}

}  // namespace
}  // namespace leeway
