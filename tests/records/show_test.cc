#include "records/show.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace leeway {
namespace {

using nlohmann::json;
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

// The parser keeps the last of two equal keys: a counting one finds them.
bool HasDuplicateKeys(const std::string& text) {
  std::vector<std::set<std::string>> open;
  bool found = false;
  const auto watch = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key) {
      found = found || !open.back().insert(parsed.get<std::string>()).second;
    }
    return true;
  };
  EXPECT_FALSE(json::parse(text, watch).is_discarded());
  return found;
}

TEST(RunJsonTest, HasTheAgreedKeys) {
  const json shown = json::parse(RunJson(FinishedRun()));
  EXPECT_EQ(shown["status"], "done");
  EXPECT_EQ(shown["seed"], 7);
  EXPECT_EQ(shown["optimum"], json({{"gradient_norm", 2e-13},
                                    {"rounds", 2},
                                    {"model", "runs/paper/models/optimum.safetensors"}}));
  const json& probe = shown["probes"].at(0);
  EXPECT_EQ(probe["point"], "optimum");
  EXPECT_EQ(probe["round"], 44);
  EXPECT_EQ(probe["clients"], 100);
  EXPECT_EQ(probe["steps"].size(), 3u);
  EXPECT_EQ(probe["steps"][2]["h"], 100);
  for (const char* key : {"round",
                          "loss",
                          "local_steps",
                          "step_size",
                          "batch_size",
                          "server_rate",
                          "average_drift_squared",
                          "drift_bound",
                          "unbiased_drift_squared",
                          "encoding_variance",
                          "distance_squared",
                          "encoding_error_squared",
                          "attempts",
                          "sampled",
                          "replaced",
                          "reports",
                          "seconds",
                          "opened",
                          "idle_share",
                          "model_sha256"}) {
    EXPECT_TRUE(shown["rounds"][0].contains(key)) << key;
  }
  EXPECT_EQ(shown["rounds"][0]["round"], 1);
  EXPECT_EQ(shown["rounds"][0]["round_in_run"], 45);
  EXPECT_EQ(shown["rounds"][0]["loss"], 0.1);
  EXPECT_EQ(shown["rounds"][0]["average_drift_squared"], 1e-9);
  EXPECT_TRUE(shown["rounds"][1]["average_drift_squared"].is_null());
  EXPECT_EQ(shown["evaluations"], json::array());
  EXPECT_EQ(shown["final_model"], "runs/paper/models/final.safetensors");
  EXPECT_FALSE(shown.contains("message"));
}

TEST(RunJsonTest, HasConfigModelsClientsAndEvents) {
  RunSummary run = FinishedRun();
  run.run_id = "17";
  run.config.mutable_model()->mutable_linear_regression()->set_l2(0.1);
  run.roster = {{"a\xff", 50, 10}, {"evaluator", 0, 7}};
  v1::Event& event = run.events.emplace_back();
  event.set_sequence(1);
  event.set_kind(v1::Event::JOINED);
  event.set_subject("a\xff");
  const json shown = json::parse(RunJson(run));
  EXPECT_EQ(shown["run_id"], "17");
  EXPECT_EQ(shown["config"]["model"]["linear_regression"]["l2"], 0.1);
  EXPECT_EQ(shown["models"]["optimum"],
            json({{"path", "runs/paper/models/optimum.safetensors"}, {"sha256", "00"}}));
  EXPECT_EQ(shown["clients"][0],
            json({{"id", "a\uFFFD"}, {"examples", 50}, {"test_examples", 10}}));
  EXPECT_EQ(shown["clients"][1]["examples"], 0);
  EXPECT_EQ(shown["events"].size(), 1u);
  EXPECT_EQ(shown["events"][0]["kind"], "joined");
  v1::RunConfig back;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(shown["config"].dump(), &back).ok());
  EXPECT_EQ(back.seed(), 7u);
}

TEST(RunJsonTest, HasNoKeyTwice) {
  EXPECT_TRUE(HasDuplicateKeys(R"({"a": {"b": 1, "b": 2}})"));
  EXPECT_FALSE(HasDuplicateKeys(R"({"a": {"b": 1}, "b": [{"a": 1}, {"a": 1}]})"));
  RunSummary run = FinishedRun();
  run.records.back().add_percentiles()->set_percent(10);
  run.records.back().mutable_constants();
  run.records.back().mutable_fixed_point();
  v1::RoundRecord& evaluation = run.records.emplace_back(run.records.back());
  evaluation.set_kind(v1::EVALUATE_ROUND);
  EXPECT_FALSE(HasDuplicateKeys(RunJson(run)));
}

TEST(RunJsonTest, WhatIsNotThereIsNull) {
  RunSummary run;
  run.directory = "runs/new";
  EXPECT_EQ(json::parse(RunJson(run)), json::parse(R"({
    "status": "gathering", "seed": null, "optimum": null, "constants": null,
    "fixed_points": [], "releases": [], "who_pays": [], "probes": [], "rounds": [], "final_loss": null, "evaluations": [], "troubles": 0, "final_model": null,
    "run_id": null, "config": null, "models": {}, "clients": [], "epochs": [], "events": []})"));
  EXPECT_THAT(RunText(run), HasSubstr("waiting for its clients"));
}

TEST(RunJsonTest, AFailureHasItsMessage) {
  RunSummary run = FinishedRun();
  run.state = v1::FAILED;
  run.message = "the loss is not finite";
  const json shown = json::parse(RunJson(run));
  EXPECT_EQ(shown["status"], "failed");
  EXPECT_EQ(shown["message"], "the loss is not finite");
  EXPECT_THAT(RunText(run), HasSubstr("failed: the loss is not finite"));
}

TEST(RunJsonTest, AWatcherIsSentWhatIsNew) {
  const nlohmann::ordered_json news = MeasuredJson(FinishedRun(), 45);
  EXPECT_EQ(news["probes"].size(), 0u);
  ASSERT_EQ(news["rounds"].size(), 1u);
  EXPECT_EQ(news["rounds"][0]["round_in_run"], 46);
}

TEST(ConclusionTest, SaysWhatTheSharesSay) {
  EXPECT_EQ(Conclusion(ProbeWithShares({{1, 0.9}, {2, 0.002}, {100, 0.004}})),
            "At w* the average drift squared stays at least 250 times below its bound for every H "
            "from 2 to 100: client disagreement cancels out.");
  EXPECT_THAT(Conclusion(ProbeWithShares({{2, 0.002}, {10, 0.3}})),
              HasSubstr("reaches 30 % of its bound (at H = 10): client disagreement cancels only"));
  EXPECT_THAT(Conclusion(ProbeWithShares({{2, 0.97}, {10, 0.5}})), HasSubstr("does not cancel"));
  EXPECT_THAT(Conclusion(ProbeWithShares({{5, 0.01}})), HasSubstr("for H = 5"));
  EXPECT_THAT(Conclusion(ProbeWithShares({{5, 1e-12}})),
              HasSubstr("cannot be distinguished from zero"));
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
  const json shown = json::parse(RunJson(run))["optimum"];
  EXPECT_EQ(shown["gradient_norm"], 1e-15);
  EXPECT_EQ(shown["rounds"], 2);
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

TEST(RunTextTest, ShowsTheIdleShareOfTrainingByTheTimeOfItsRounds) {
  RunSummary run = FinishedRun();
  EXPECT_THAT(RunText(run), Not(HasSubstr("Idle share")));
  v1::RoundRecord& second = run.records[run.records.size() - 1];
  v1::RoundRecord& first = run.records[run.records.size() - 2];
  first.set_seconds(3);
  first.set_idle_share(0.1);
  second.set_seconds(1);
  second.set_idle_share(0.5);
  EXPECT_THAT(RunText(run), HasSubstr("\nIdle share of the hosts' threads and ranks: 20.0 %\n"));
}

TEST(LoadRunTest, AMissingDirectoryHasARemedy) {
  const absl::Status status = LoadRun("/no/such/run").status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("leeway run CONFIG"));
}

}  // namespace
}  // namespace leeway
