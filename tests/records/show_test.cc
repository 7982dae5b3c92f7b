#include "records/show.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace leeway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

v1::RoundRecord ProbeWithShares(std::initializer_list<std::pair<uint32_t, double>> shares) {
  v1::RoundRecord probe;
  probe.set_round(44);
  probe.set_kind(v1::PROBE_ROUND);
  probe.set_point(v1::Probe::OPTIMUM);
  probe.set_step_size(0.01);
  probe.set_reports(100);
  probe.set_dissimilarity(2);
  for (const auto& [h, share] : shares) {
    v1::DriftAtSteps* drift = probe.add_drift();
    drift->set_h(h);
    drift->set_drift_bound(h == 1 ? 1e-30 : 0.5);
    drift->set_average_drift_squared(share * drift->drift_bound());
    drift->set_unbiased_drift_squared(share * drift->drift_bound());
    drift->set_interval_low(share * drift->drift_bound());
    drift->set_interval_high(share * drift->drift_bound());
  }
  return probe;
}

RunSummary FinishedRun() {
  RunSummary run;
  run.directory = "runs/paper";
  run.begun = true;
  run.state = v1::DONE;
  run.config.set_seed(7);
  run.clients = 100;
  run.names = {{"final", "ff"}, {"optimum", "00"}};
  for (uint64_t i = 1; i <= 2; ++i) {
    v1::RoundRecord& record = run.records.emplace_back();
    record.set_kind(v1::OPTIMUM_ROUND);
    record.set_round(i);
    record.set_round_in_phase(i);
    record.set_gradient_norm(i == 2 ? 2e-13 : 1);
  }
  run.records.push_back(ProbeWithShares({{1, 0.9}, {2, 0.002}, {100, 0.004}}));
  for (uint64_t i = 1; i <= 2; ++i) {
    v1::RoundRecord& record = run.records.emplace_back();
    record.set_kind(v1::TRAIN_ROUND);
    record.set_round(44 + i);
    record.set_round_in_phase(i);
    record.set_loss(0.1);
    record.set_local_steps(10);
    record.set_model_sha256("abc");
    if (i == 2) continue;  // drift is measured in the first only
    record.add_drift()->set_average_drift_squared(1e-9);
  }
  return run;
}

TEST(RunJsonTest, HasTheAgreedKeys) {
  const std::string json = RunJson(FinishedRun());
  EXPECT_THAT(json, HasSubstr("\"status\": \"done\",\n  \"seed\": 7,\n  \"optimum\": {\n    "
                              "\"gradient_norm\": 2.0000000000000001e-13,\n    \"rounds\": 2,\n"
                              "    \"model\": \"runs/paper/models/optimum.safetensors\"\n  }"));
  EXPECT_THAT(json, HasSubstr("\"point\": \"optimum\",\n      \"round\": 44"));
  EXPECT_THAT(json, HasSubstr("\"clients\": 100"));
  EXPECT_THAT(json, HasSubstr("\"round\": 1,\n      \"loss\": 0.10000000000000001,"));
  EXPECT_THAT(json, HasSubstr("\"average_drift_squared\": 1.0000000000000001e-09,"));
  EXPECT_THAT(json, HasSubstr("\"average_drift_squared\": null,"));
  EXPECT_THAT(json, HasSubstr("\"evaluations\": [],\n  \"events\": 0,\n  \"troubles\": 0,\n  "
                              "\"final_model\": \"runs/paper/models/final.safetensors\"\n}\n"));
  EXPECT_THAT(json, Not(HasSubstr("message")));
}

TEST(RunJsonTest, WhatIsNotThereIsNull) {
  RunSummary run;
  run.directory = "runs/new";
  EXPECT_EQ(RunJson(run),
            "{\n  \"status\": \"gathering\",\n  \"seed\": null,\n  \"optimum\": null,\n"
            "  \"constants\": null,\n  \"fixed_points\": [],\n  \"probes\": [],\n  \"rounds\": "
            "[],\n  \"evaluations\": [],\n  \"events\": 0,\n  \"troubles\": 0,\n"
            "  \"final_model\": null\n}\n");
  EXPECT_THAT(RunText(run), HasSubstr("waiting for its clients"));
}

TEST(RunJsonTest, AFailureHasItsMessage) {
  RunSummary run = FinishedRun();
  run.state = v1::FAILED;
  run.message = "the loss is not finite";
  EXPECT_THAT(RunJson(run), HasSubstr("\"status\": \"failed\",\n  \"message\": \"the loss is not"));
  EXPECT_THAT(RunText(run), HasSubstr("failed: the loss is not finite"));
}

TEST(ConclusionTest, SaysWhatTheSharesSay) {
  EXPECT_EQ(Conclusion(ProbeWithShares({{1, 0.9}, {2, 0.002}, {100, 0.004}})),
            "At w* the average drift squared stays at least 250 times below its bound for every H "
            "from 2 to 100: client disagreement cancels out.");
  EXPECT_THAT(Conclusion(ProbeWithShares({{2, 0.002}, {10, 0.3}})),
              HasSubstr("reaches 30 % of its bound (at H = 10): client disagreement cancels only"));
  EXPECT_THAT(Conclusion(ProbeWithShares({{2, 0.97}, {10, 0.5}})), HasSubstr("does not cancel"));
  EXPECT_THAT(Conclusion(ProbeWithShares({{5, 0.01}})), HasSubstr("for H = 5"));
  EXPECT_THAT(Conclusion(ProbeWithShares({{5, 1e-12}})), HasSubstr("cannot be told from zero"));
  EXPECT_THAT(Conclusion(ProbeWithShares({{1, 0.9}})), HasSubstr("no client drifts"));
}

TEST(ConclusionTest, OfASampleGoesByTheUpperEndOfItsInterval) {
  v1::RoundRecord probe = ProbeWithShares({{5, -0.01}});
  v1::DriftAtSteps& drift = *probe.mutable_drift(0);
  drift.set_interval_high(0.02 * drift.drift_bound());
  EXPECT_THAT(Conclusion(probe), AllOf(HasSubstr("interval from a sample) stays at least 50 times"),
                                       HasSubstr("cancels out")));
  drift.set_interval_high(0.4 * drift.drift_bound());
  EXPECT_THAT(Conclusion(probe), AllOf(HasSubstr("reaches 40 %"), HasSubstr("may not cancel")));
}

TEST(ConclusionTest, WhatWasNotMeasuredIsNotZero) {
  v1::RoundRecord probe = ProbeWithShares({{5, std::nan("")}});
  probe.set_reports(1);
  EXPECT_THAT(Conclusion(probe), AllOf(HasSubstr("not known: 1 of the clients are too few"),
                                       HasSubstr("at least 4"), Not(HasSubstr("cancels"))));
  RunSummary run = FinishedRun();
  run.records[2] = probe;
  EXPECT_THAT(RunText(run), Not(HasSubstr("nan")));
}

TEST(RunTextTest, TheOptimumIsTheBestTrialNotTheLast) {
  RunSummary run = FinishedRun();
  run.records[0].set_gradient_norm(1e-15);
  run.records[0].set_loss(0.25);
  run.records[1].set_loss(0.75);
  ASSERT_EQ(FindOptimum(run), &run.records[0]);
  EXPECT_THAT(RunText(run), HasSubstr("|grad F| = 1e-15 after 2 rounds, loss 0.25"));
  EXPECT_THAT(RunJson(run), AllOf(HasSubstr("\"gradient_norm\": 1.0000000000000001e-15"),
                                  HasSubstr("\"rounds\": 2,")));
  // Of a later search its own best, wherever that is worse.
  v1::RoundRecord again = run.records[1];
  again.set_phase(5);
  again.set_round(60);
  run.records.push_back(again);
  EXPECT_EQ(FindOptimum(run), &run.records.back());
  EXPECT_EQ(FindOptimum(run, 60), &run.records[0]);
}

TEST(RunTextTest, ShowsTablesAndPlaces) {
  const std::string text = RunText(FinishedRun());
  EXPECT_THAT(text, HasSubstr("|grad F| = 2e-13 after 2 rounds"));
  EXPECT_THAT(text, HasSubstr("     100          0.002            0.5           250\n"));
  EXPECT_THAT(text, HasSubstr("runs/paper/models/final.safetensors"));
  EXPECT_THAT(ResultsText(FinishedRun()), HasSubstr("leeway show runs/paper"));
}

TEST(LoadRunTest, AMissingDirectoryHasARemedy) {
  const absl::Status status = LoadRun("/no/such/run").status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("leeway run CONFIG"));
}

}  // namespace
}  // namespace leeway
