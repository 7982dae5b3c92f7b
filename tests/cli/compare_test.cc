#include "cli/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/records/run_fixture.h"

namespace leeway {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A finished run that trained with h local steps for so many rounds.
RunSummary Trained(const std::string& directory, uint32_t h, uint64_t rounds) {
  RunSummary run = OptimumRun(4);
  run.directory = directory;
  v1::Train& train = *run.config.add_phases()->mutable_train();
  train.mutable_local()->set_steps(h);
  train.mutable_local()->set_step_size(kStepSize);
  for (const char* id : {"a", "b", "c", "d"}) run.roster.push_back({.id = id, .examples = 10});
  run.names.push_back({"final", std::string(64, h == 1 ? '1' : 'f')});
  AddTraining(run, 4, h, rounds);
  return run;
}

const ComparedRun& Last(const Comparing& comparing) { return comparing.runs.back(); }

TEST(CompareTest, NamesAreTheShortestThatDiffer) {
  EXPECT_THAT(ShortNames({"runs/a", "runs/b/"}), ElementsAre("a", "b"));
  EXPECT_THAT(ShortNames({"x/a/run", "x/b/run", "c"}), ElementsAre("a/run", "b/run", "c"));
  EXPECT_THAT(ShortNames({"run", "x/run"}), ElementsAre("run", "x/run"));
}

TEST(CompareTest, ReadsWhatTheLastTrainingRoundsMeasured) {
  const Comparing comparing = Compare({Trained("runs/one", 1, 30), Trained("runs/ten", 10, 20)});
  EXPECT_THAT(comparing.warnings, IsEmpty());
  EXPECT_EQ(Last(comparing).name, "ten");
  EXPECT_EQ(Last(comparing).rounds, 20u);
  EXPECT_EQ(Last(comparing).steps, "10");
  EXPECT_EQ(Last(comparing).step_size, kStepSize);
  // There is no round that measured the final model: the last round's start is known.
  EXPECT_DOUBLE_EQ(Last(comparing).loss, 0.5 + std::pow(0.8, 20));
  EXPECT_EQ(Last(comparing).drift_squared, 2e-6);
  EXPECT_DOUBLE_EQ(Last(comparing).drift_bound, 1e-3 * std::pow(0.9, 20));
  EXPECT_TRUE(std::isnan(Last(comparing).accuracy));
  EXPECT_THAT(comparing.differing, ElementsAre("train.local.steps"));
}

TEST(CompareTest, TextHasARowForEachRunAndWhatDiffers) {
  const std::string text =
      CompareText(Compare({Trained("runs/one", 1, 30), Trained("runs/ten", 10, 20)}));
  EXPECT_THAT(text, AllOf(HasSubstr("run"), HasSubstr("verdict"), HasSubstr("0.511529"),
                          HasSubstr("train.local.steps: 1 | 10"), Not(HasSubstr("nan")),
                          HasSubstr("one: final model 1111111111111111\n"),
                          HasSubstr("ten: final model ffffffffffffffff\n")));
}

TEST(CompareTest, JsonHasNumbersInFullAndNullForWhatIsNotKnown) {
  const auto json = nlohmann::json::parse(
      CompareJson(Compare({Trained("runs/one", 1, 30), Trained("runs/ten", 10, 20)})));
  ASSERT_EQ(json["runs"].size(), 2u);
  EXPECT_EQ(json["runs"][1]["loss"], 0.5 + std::pow(0.8, 20));
  EXPECT_EQ(json["runs"][1]["rounds"], 20);
  EXPECT_TRUE(json["runs"][1]["accuracy"].is_null());
  EXPECT_TRUE(json["runs"][1]["verdict"].is_null());
  EXPECT_EQ(json["runs"][0]["settings"]["train.local.steps"], "1");
  EXPECT_EQ(json["differing_settings"], nlohmann::json({"train.local.steps"}));
}

TEST(CompareTest, OtherModelsDataAndWeightsAreWarnedOf) {
  RunSummary other = Trained("runs/other", 10, 20);
  other.config.mutable_model()->mutable_mlp()->add_hidden(8);
  other.config.set_weighting(v1::EXAMPLES);
  other.roster[2].examples = 11;
  other.state = v1::RUNNING;
  const Comparing comparing = Compare({Trained("runs/one", 1, 30), other});
  EXPECT_THAT(
      comparing.warnings,
      ElementsAre(AllOf(HasSubstr("one and other train different models"),
                        HasSubstr("compare their accuracy")),
                  HasSubstr("different clients or data"), HasSubstr("weigh clients differently"),
                  AllOf(HasSubstr("other is not finished"), HasSubstr("leeway run"))));
  EXPECT_THAT(CompareText(comparing), HasSubstr("Warning: one and other"));
  EXPECT_THAT(ComparePage(comparing, {}, ""), HasSubstr("role=\"alert\""));
}

TEST(CompareTest, TheSameNameWithOtherDataIsNoticedByItsDigest) {
  RunSummary a = Trained("runs/a", 1, 3);
  RunSummary b = Trained("runs/b", 1, 3);
  a.roster[0].digest = 7;
  EXPECT_THAT(Compare({a, b}).warnings, IsEmpty());  // not known of b
  b.roster[0].digest = 8;
  EXPECT_THAT(Compare({a, b}).warnings, ElementsAre(HasSubstr("different clients or data")));
}

TEST(CompareTest, AutoStepsHaveAChartOfTheirOwn) {
  RunSummary run = Trained("runs/auto", 64, 10);
  run.config.mutable_phases(4)->mutable_train()->mutable_local()->mutable_auto_steps();
  run.records.back().set_local_steps(32);
  const Comparing comparing = Compare({Trained("runs/one", 1, 10), run});
  EXPECT_EQ(Last(comparing).steps, "64 to 32");
  const std::vector<Chart> charts = CompareCharts(comparing);
  const auto steps = std::find_if(charts.begin(), charts.end(), [](const Chart& chart) {
    return chart.id == "steps_over_rounds";
  });
  ASSERT_NE(steps, charts.end());
  ASSERT_EQ(steps->series.size(), 2u);
  EXPECT_EQ(steps->series[1].points.front().y, 64);
  EXPECT_EQ(steps->series[1].points.back().y, 32);
  // Without a run that changes it, the table says it.
  for (const Chart& chart : CompareCharts(Compare({Trained("a", 1, 9), Trained("b", 2, 9)}))) {
    EXPECT_NE(chart.id, "steps_over_rounds");
  }
}

TEST(CompareTest, ChartsHaveTheRunsAsSeries) {
  RunSummary both = Trained("runs/both", 10, 20);
  both.config.add_phases()->mutable_train()->mutable_local()->set_steps(1);
  AddTraining(both, 5, 1, 20);
  AddFixedPoint(both, 10, 2);
  const Comparing comparing = Compare({Trained("runs/one", 1, 30), both});
  std::vector<std::string> ids;
  for (const Chart& chart : CompareCharts(comparing)) ids.push_back(chart.id);
  EXPECT_THAT(ids, ElementsAre("loss_over_rounds", "drift_over_rounds", "lost_over_steps"));
  const Chart loss = CompareCharts(comparing).front();
  ASSERT_EQ(loss.series.size(), 3u);
  EXPECT_EQ(loss.series[0].name, "one");
  EXPECT_EQ(loss.series[1].name, "both, H = 10");
  EXPECT_EQ(loss.series[2].name, "both, H = 1");
  EXPECT_NE(loss.series[0].color, loss.series[1].color);
  EXPECT_EQ(loss.series[1].color, loss.series[2].color);
  EXPECT_DOUBLE_EQ(loss.series[1].points[4].y, 0.5 + std::pow(0.8, 5));
}

TEST(CompareTest, NothingOnThePageIsTakenForHtml) {
  RunSummary run = Trained("runs/<script>alert(1)</script>", 10, 20);
  run.config.mutable_initial()->set_file("<img>");
  const Comparing comparing = Compare({Trained("runs/one", 1, 30), run});
  const std::string page = ComparePage(comparing, CompareCharts(comparing), "files/");
  EXPECT_THAT(page, AllOf(Not(HasSubstr("<script>")), Not(HasSubstr("<img>")),
                          HasSubstr("href=\"files/loss_over_rounds.svg\"")));
}

TEST(CompareTest, OneRunOrTheSameTwiceIsRefusedWithTheRemedy) {
  EXPECT_THAT(std::string(LoadComparing({"runs/a"}).status().message()),
              AllOf(HasSubstr("two runs or more"), HasSubstr("leeway show runs/a")));
  EXPECT_TRUE(absl::IsNotFound(LoadComparing({"/nowhere/a", "/nowhere/b"}).status()));
  EXPECT_THAT(std::string(LoadComparing({"/nowhere/a", "/nowhere/b"}).status().message()),
              HasSubstr("/nowhere/a"));
}

}  // namespace
}  // namespace leeway
