#include "records/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "records/theory.h"
#include "tests/records/run_fixture.h"

namespace leeway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

RunSummary RunWithGaps(const std::vector<std::pair<uint32_t, double>>& gaps,
                       uint64_t clients = 100) {
  RunSummary run = OptimumRun(clients);
  AddConstants(run);
  std::vector<uint32_t> steps;
  for (const auto& [h, gap] : gaps) steps.push_back(h);
  AddProbe(run, steps);
  for (const auto& [h, gap] : gaps) AddFixedPoint(run, h, gap);
  return run;
}

std::string WarningsOf(const Verdict& verdict) { return absl::StrJoin(verdict.warnings, "\n"); }

struct Case {
  std::vector<std::pair<uint32_t, double>> gaps;  // H, gap in standard errors of 4 %
  uint64_t clients;
  Finding finding;
  uint32_t largest_harmless_h;  // 0: none
  std::string sentence;         // part of it
};

class VerdictCaseTest : public testing::TestWithParam<Case> {};

TEST_P(VerdictCaseTest, FollowsTheRule) {
  const Case& c = GetParam();
  const absl::StatusOr<Verdict> verdict = Judge(RunWithGaps(c.gaps, c.clients));
  ASSERT_TRUE(verdict.ok()) << verdict.status();
  EXPECT_EQ(verdict->finding, c.finding) << verdict->sentence;
  EXPECT_EQ(verdict->largest_harmless_h.value_or(0), c.largest_harmless_h);
  EXPECT_THAT(verdict->sentence, HasSubstr(c.sentence));
  EXPECT_EQ(verdict->evidence.size(), c.gaps.size());
  EXPECT_THAT(verdict->warnings, IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Verdicts, VerdictCaseTest,
    testing::Values(
        Case{{{1, 0}, {10, 0.01}, {100, 0.045}},
             100,
             Finding::kHarmless,
             100,
             "does not hurt here up to H = 100 local steps of 0.01: where FedAvg settles, it loses "
             "at most 0.18 % of what the model explains (100 clients)."},
        Case{{{2, 0.2499}}, 10, Finding::kHarmless, 2, "up to H = 2"},
        Case{{{1, -1e-12}, {10, 1e-9}}, 100, Finding::kHarmless, 10, "up to H = 10"},
        Case{
            {{1, 0}, {2, 0.1}, {10, 5}, {200, 15}},
            100,
            Finding::kConflict,
            2,
            "Clients conflict from H = 10: with local steps of 0.01 FedAvg settles 0.1 above the "
            "optimum and loses 20 % of what the model explains (100 clients); consider fewer local "
            "steps or personalised models. Up to H = 2 it does not hurt."},
        Case{{{2, 0.76}}, 100, Finding::kConflict, 0, "from H = 2"},
        // One conflict is enough, wherever it is.
        Case{{{2, 3}, {10, 0.1}}, 100, Finding::kConflict, 0, "from H = 2"},
        Case{{{2, 0.5}, {10, 3}}, 100, Finding::kConflict, 0, "from H = 10"},
        Case{{{2, 0.1}, {10, 0.5}, {50, 0.2}},
             100,
             Finding::kUncertain,
             2,
             "Uncertain from H = 10: with local steps of 0.01 FedAvg settles 0.01 above the "
             "optimum and loses 2 % of what the model explains (100 clients); below 1 % is "
             "harmless, above 3 % a conflict. Up to H = 2"},
        Case{{{2, 0.26}}, 100, Finding::kUncertain, 0, "Uncertain"},
        Case{{{2, 0.74}}, 100, Finding::kUncertain, 0, "Uncertain"},
        // A handful of clients is enough.
        Case{{{2, 0.01}}, 2, Finding::kHarmless, 2, "(2 clients)"},
        Case{{{2, 0.01}, {10, 4}}, 9, Finding::kConflict, 2, "conflict from H = 10"},
        Case{{{2, 0}}, 1, Finding::kUncertain, 0, "A single client cannot disagree with itself"},
        Case{{{2, 100}}, 1, Finding::kUncertain, 0, "A single client"}));

TEST(VerdictTest, TheConfigMovesTheThresholds) {
  RunSummary run = RunWithGaps({{2, 0.5}});
  run.config.set_harmless_lost(0.021);
  EXPECT_EQ(Judge(run)->finding, Finding::kHarmless);
  run.config.set_harmless_lost(0.01);
  run.config.set_conflict_lost(0.019);
  EXPECT_EQ(Judge(run)->finding, Finding::kConflict);
}

TEST(VerdictTest, WhatTheOptimumOwesToSamplingGuardsTheVerdict) {
  RunSummary run = RunWithGaps({{2, 0.5}});  // 2 %, a gap of 0.01
  v1::Yardstick* yardstick = nullptr;
  for (v1::RoundRecord& record : run.records) {
    if (record.has_yardstick()) yardstick = record.mutable_yardstick();
  }
  yardstick->set_sampling_error(0.011);
  EXPECT_EQ(Judge(run)->finding, Finding::kHarmless);
  EXPECT_THAT(
      Judge(run)->sentence,
      HasSubstr("at most 2 % of what the model explains (100 clients), less than the optimum "
                "itself owes to the choice of clients"));
  // A large loss is not called harmless, however little is known.
  run.records.back().mutable_fixed_point()->set_loss_gap(0.1);
  yardstick->set_sampling_error(0.12);
  yardstick->set_sampling_error_high(0.2);
  EXPECT_EQ(Judge(run)->finding, Finding::kUncertain);
  EXPECT_THAT(Judge(run)->sentence,
              AllOf(HasSubstr("loses 17 %"), HasSubstr("by as much (0.12); measure with more")));
  yardstick->set_sampling_error(0.05);
  yardstick->set_sampling_error_high(0.11);
  EXPECT_EQ(Judge(run)->finding, Finding::kUncertain);
  yardstick->set_sampling_error_high(0.09);
  EXPECT_EQ(Judge(run)->finding, Finding::kConflict);
}

TEST(VerdictTest, RoundingIsNotWeighedAgainstRounding) {
  // Identical clients: no spread at all.
  RunSummary run = RunWithGaps({{10, 0}});
  v1::FixedPointResult& point = *run.records.back().mutable_fixed_point();
  point.set_loss_standard_error(0);
  point.set_loss_gap(3e-15);
  EXPECT_EQ(Judge(run)->finding, Finding::kHarmless);
  EXPECT_EQ(Judge(run)->evidence[0].gap_in_standard_errors, 0);
  // A model that fits all clients: loss, spread and gap are all rounding.
  run.records.back().set_loss(2e-26);
  point.set_loss_standard_error(1e-27);
  point.set_loss_gap(1.5e-26);
  EXPECT_EQ(Judge(run)->finding, Finding::kHarmless);
  // A real gap without any spread of the loss.
  point.set_loss_standard_error(0);
  point.set_loss_gap(0.1);
  EXPECT_EQ(Judge(run)->finding, Finding::kConflict);
  EXPECT_TRUE(std::isnan(Judge(run)->evidence[0].gap_in_standard_errors));
}

TEST(VerdictTest, ASearchThatDidNotSettleProvesNothing) {
  RunSummary run = RunWithGaps({{2, 0.01}, {10, 0.01}});
  run.records.back().mutable_fixed_point()->set_pseudo_gradient_norm(0.1);
  const Verdict verdict = *Judge(run);
  EXPECT_EQ(verdict.finding, Finding::kUncertain);
  EXPECT_EQ(verdict.largest_harmless_h, 2u);
  EXPECT_THAT(verdict.sentence, HasSubstr("did not come to rest (|G| = 0.1); raise "
                                          "fixed_point.max_rounds"));
  EXPECT_THAT(verdict.warnings, IsEmpty());
  // So near to rest that the rest of the way cannot matter: above the tolerance only.
  run.records.back().mutable_fixed_point()->set_pseudo_gradient_norm(5e-9);
  EXPECT_EQ(Judge(run)->finding, Finding::kHarmless);
}

TEST(VerdictTest, BelowTheOptimumIsNoOptimum) {
  const Verdict verdict = *Judge(RunWithGaps({{2, -3}}));
  EXPECT_EQ(verdict.finding, Finding::kUncertain);
  EXPECT_THAT(verdict.sentence, HasSubstr("lower optimum.tolerance"));
}

TEST(VerdictTest, EvidenceStandsBesideIt) {
  const Verdict verdict = *Judge(RunWithGaps({{1, 0}, {10, 0.1}}));
  const Evidence& one = verdict.evidence[1];
  EXPECT_EQ(one.h, 10u);
  EXPECT_DOUBLE_EQ(one.gap, 0.1 * kStandardError);
  EXPECT_DOUBLE_EQ(one.gap_in_standard_errors, 0.1);
  EXPECT_NEAR(one.lost, 0.004, 1e-15);
  EXPECT_NEAR(one.explained, 0.5, 1e-15);
  EXPECT_DOUBLE_EQ(one.sampling_error, 0.002);
  EXPECT_DOUBLE_EQ(one.distance_squared, 1e-6);
  EXPECT_DOUBLE_EQ(one.average_drift_squared, 1e-6);
  EXPECT_DOUBLE_EQ(one.drift_bound, 1e-3);
  EXPECT_DOUBLE_EQ(one.floor, 20 * 1e-6 / 0.25);
}

TEST(VerdictTest, TrainingThatContradictsItIsNamed) {
  RunSummary run = RunWithGaps({{2, 0.1}, {10, 5}});
  v1::Train& train = *run.config.add_phases()->mutable_train();
  train.set_rounds(3);
  train.mutable_server()->set_rate(1);
  AddTraining(run, 4, 2, 3);
  const auto trained = [&](double lost) {
    run.records.back().set_loss(0.5 + lost * 0.5);
    const Verdict verdict = *Judge(run);
    return verdict.trained.empty() ? TrainedModel() : verdict.trained[0];
  };
  EXPECT_EQ(trained(0.02).text,
            "After 2 rounds of training with H = 2 local steps of 0.01 the model is 0.01 above the "
            "optimum and loses 2 % of what it could explain.");
  EXPECT_NEAR(trained(0.02).lost, 0.02, 1e-12);
  EXPECT_FALSE(trained(0.02).contradicts);
  EXPECT_TRUE(trained(0.031).contradicts);
  EXPECT_THAT(
      trained(0.031).text,
      HasSubstr("contradicts the verdict that H = 2 is harmless: training has not settled"));
  // Where it stands still, what differs from the verdict's FedAvg is named.
  train.mutable_local()->set_batch_size(20);
  EXPECT_THAT(trained(0.031).text, HasSubstr("stands still there with batches of 20, and"));
  run.records.back().set_local_steps(10);
  EXPECT_THAT(trained(0.009).text, HasSubstr("not come to where it settles, which loses 20 %"));
  EXPECT_FALSE(trained(0.02).contradicts);
  // Not the step size that the verdict is about, or not all clients.
  run.records.back().set_step_size(0.02);
  EXPECT_FALSE(trained(0.009).contradicts);
  // The final model's own loss, where a round has measured it.
  const double final_loss = 0.5 + 0.04 * 0.5;
  run.records.back().set_model_sha256("end");
  v1::RoundRecord end = run.records.back();
  end.set_kind(v1::FINAL_LOSS_ROUND);
  end.set_round(end.round() + 1);
  end.set_base_sha256("end");
  end.set_loss(final_loss);
  run.records.push_back(end);
  EXPECT_EQ(Judge(run)->trained[0].loss, final_loss);
  EXPECT_EQ(Judge(run)->trained[0].rounds, 3u);
  run.records.pop_back();
  run.records.back().set_reports(10);
  EXPECT_TRUE(trained(0.009).text.empty());
}

TEST(VerdictTest, WhoPaysIsOfTheFirstConflict) {
  RunSummary run = OptimumRun();
  for (const uint32_t h : {2u, 10u, 50u}) {
    v1::FixedPointResult& point = AddFixedPoint(run, h, h == 2 ? 0.1 : 5);
    point.set_after_rounds(30);
    point.set_loss_after_rounds(0.55);
    v1::RoundRecord record = run.records.back();
    record.clear_fixed_point();
    record.set_round(record.round() + 1);
    record.mutable_who_pays()->set_h(h);
    record.mutable_who_pays()->set_clients(20);
    record.mutable_who_pays()->set_losers(h / 2);
    for (int k = 1; k <= 9; ++k) record.mutable_who_pays()->add_loss_deciles(0.01 * k);
    run.records.push_back(record);
  }
  const Verdict verdict = *Judge(run);
  EXPECT_THAT(verdict.who_pays, HasSubstr("Who pays at H = 10: half of the clients lose less than "
                                          "0.05, the worst tenth more than 0.09; 5 of 20 lose."));
  for (const Evidence& one : verdict.evidence) {
    ASSERT_TRUE(one.who_pays.has_value());
    EXPECT_EQ(one.who_pays->losers(), one.h / 2);
    EXPECT_EQ(one.after_rounds, 30u);
    EXPECT_NEAR(one.lost_after_rounds, 0.1, 1e-12);
  }
}

TEST(VerdictTest, OnlyAProbeOfTheSameStepsIsEvidence) {
  RunSummary run = OptimumRun();
  AddConstants(run);
  AddProbe(run, {10}).set_step_size(2 * kStepSize);
  AddProbe(run, {10}).set_point(v1::Probe::INITIAL);
  AddProbe(run, {10}).set_batch_size(5);
  AddFixedPoint(run, 10, 0.1);
  const Verdict verdict = *Judge(run);
  EXPECT_TRUE(std::isnan(verdict.evidence[0].drift_bound));
  EXPECT_THAT(WarningsOf(verdict), HasSubstr("ρ² was not measured at H = 10; add `phases { probe"));
}

TEST(VerdictTest, SaysWhenTheStepSizeBreaksTheTheory) {
  const auto warnings = [](double step_size, uint32_t h) {
    RunSummary run = OptimumRun();
    AddConstants(run);
    AddProbe(run, {h}).set_step_size(step_size);
    AddFixedPoint(run, h, 0.1).set_step_size(step_size);
    return WarningsOf(*Judge(run));
  };
  EXPECT_EQ(warnings(0.05, 10), "");  // 1/L itself
  EXPECT_THAT(warnings(0.051, 10), HasSubstr("0.051 is above 1/L = 0.05"));
  EXPECT_THAT(warnings(0.11, 10), HasSubstr("above 2/L = 0.1 of the steepest client, where local"));
  EXPECT_EQ(warnings(0.01, 200), "");  // 1/(mu H) itself
  EXPECT_THAT(warnings(0.01, 201), HasSubstr("at H = 201 the step size 0.01 is above 1/(μH)"));
}

TEST(VerdictTest, SaysWhenTheFloorSaysNothing) {
  RunSummary run = OptimumRun();
  AddConstants(run, 1e-6);
  AddProbe(run, {1, 10});
  AddFixedPoint(run, 1, 0);
  AddFixedPoint(run, 10, 0.01);
  // 20 * 1e-6 / 1e-12 beside 1e-6.
  const absl::StatusOr<Verdict> verdict = Judge(run);
  EXPECT_THAT(WarningsOf(*verdict), AllOf(HasSubstr("floor says nothing"), HasSubstr("2e+13 times"),
                                          HasSubstr("μ = 1e-06")));
  EXPECT_EQ(verdict->finding, Finding::kHarmless);
}

TEST(VerdictTest, WithoutConstantsThereIsNoFloor) {
  RunSummary run = OptimumRun();
  AddProbe(run, {10});
  AddFixedPoint(run, 10, 0.1);
  EXPECT_EQ(Judge(run)->finding, Finding::kHarmless);
  EXPECT_TRUE(std::isnan(Judge(run)->evidence[0].floor));
  EXPECT_THAT(WarningsOf(*Judge(run)), HasSubstr("phases { constants { point: OPTIMUM } }"));
  AddConstants(run, 0);
  EXPECT_TRUE(std::isnan(Judge(run)->evidence[0].floor));
  EXPECT_THAT(WarningsOf(*Judge(run)), HasSubstr("not strongly convex"));
}

TEST(VerdictTest, WarnsOfWhatIsIncomplete) {
  RunSummary run = RunWithGaps({{1, 0}});
  EXPECT_THAT(WarningsOf(*Judge(run)), HasSubstr("H = 1 is plain gradient descent"));
  run = RunWithGaps({{2, 0}});
  run.state = v1::FAILED;
  EXPECT_THAT(WarningsOf(*Judge(run)), HasSubstr("not complete (failed)"));
  // What the sentence says of one H only is noted of the others.
  run = RunWithGaps({{2, 5}, {10, 5}});
  run.records.back().mutable_fixed_point()->set_pseudo_gradient_norm(0.1);
  EXPECT_EQ(Judge(run)->finding, Finding::kConflict);
  EXPECT_THAT(WarningsOf(*Judge(run)),
              HasSubstr("not enough evidence at H = 10: the search for FedAvg's"));
}

TEST(VerdictTest, WhatHasNoResultIsNotHarmless) {
  RunSummary run = RunWithGaps({{1, 0}, {5, 0.1}});
  v1::FixedPoint& phase = *run.config.mutable_phases(3)->mutable_fixed_point();
  for (const uint32_t h : {1, 5, 100, 1000}) phase.add_steps(h);
  run.state = v1::FAILED;
  run.message = "client_3 was refused";
  const Verdict failed = *Judge(run);
  EXPECT_EQ(failed.finding, Finding::kUncertain);
  EXPECT_EQ(failed.largest_harmless_h, 5u);
  EXPECT_THAT(failed.sentence,
              AllOf(HasSubstr("not enough evidence at H = 100, 1000: the run failed before"),
                    HasSubstr("in a new directory. Up to H = 5 it does not hurt.")));
  EXPECT_THAT(WarningsOf(failed), HasSubstr("(failed: client_3 was refused)"));
  run.state = v1::RUNNING;
  run.message = "";
  EXPECT_THAT(Judge(run)->sentence, HasSubstr("has not found yet"));
  // A larger H of another phase does not make up for it.
  AddFixedPoint(run, 200, 0.1);
  run.records.back().set_phase(4);
  EXPECT_EQ(Judge(run)->largest_harmless_h, 5u);
  // A conflict is one whatever is missing.
  AddFixedPoint(run, 100, 7);
  EXPECT_EQ(Judge(run)->finding, Finding::kConflict);
  EXPECT_THAT(Judge(run)->sentence,
              AllOf(HasSubstr("conflict from H = 100"),
                    HasSubstr("not enough evidence at H = 1000: the run has")));
  AddFixedPoint(run, 100, 0.1);
  AddFixedPoint(run, 1000, 0.1);
  EXPECT_EQ(Judge(run)->finding, Finding::kHarmless);
}

TEST(VerdictTest, StepSizesAreJudgedApart) {
  RunSummary run = RunWithGaps({{2, 0.1}, {10, 0.1}});
  AddFixedPoint(run, 10, 2).set_step_size(0.04);
  const Verdict verdict = *Judge(run);
  EXPECT_EQ(verdict.evidence.size(), 3u);
  EXPECT_EQ(verdict.finding, Finding::kConflict);
  EXPECT_EQ(verdict.largest_harmless_h, 2u);
  // The same measured again replaces the first.
  AddFixedPoint(run, 10, 0.05).set_step_size(0.04);
  EXPECT_EQ(Judge(run)->finding, Finding::kHarmless);
}

TEST(VerdictTest, WithoutFixedPointsThereIsARemedy) {
  RunSummary run = OptimumRun();
  run.config.clear_phases();
  const absl::Status none = Judge(run).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(none));
  EXPECT_THAT(std::string(none.message()),
              AllOf(HasSubstr("neither the optimum"),
                    HasSubstr("phases { optimum {} } phases { constants { point: OPTIMUM } } "
                              "phases { fixed_point { steps: [1, 10, 100] } }")));
  run.config.add_phases()->mutable_optimum();
  EXPECT_THAT(std::string(Judge(run).status().message()), HasSubstr("finds w*, but not where"));
  run.config.add_phases()->mutable_fixed_point();
  run.state = v1::RUNNING;
  EXPECT_THAT(std::string(Judge(run).status().message()),
              AllOf(HasSubstr("the run is running"), HasSubstr("same `leeway run`")));
  run.state = v1::FAILED;
  run.message = "diverged";
  EXPECT_THAT(std::string(Judge(run).status().message()),
              AllOf(HasSubstr("failed before it found"), HasSubstr("settles: diverged; fix")));
  AddConstants(run);
  run.config.add_phases()->mutable_train()->mutable_local()->set_step_size(0.2);
  EXPECT_THAT(
      std::string(Judge(run).status().message()),
      HasSubstr("0.2 is above 2/L = 0.1 of the steepest client, where local steps diverge"));
}

TEST(RisingLossTest, TrainingThatMadeTheLossWorseIsTold) {
  RunSummary run = RunWithGaps({{10, 0.1}});
  run.config.add_phases()->mutable_train()->mutable_local()->set_step_size(kStepSize);
  const auto phase = static_cast<uint32_t>(run.config.phases_size() - 1);
  AddRecord(run, v1::TRAIN_ROUND, phase).set_loss(15);
  AddRecord(run, v1::TRAIN_ROUND, phase).set_loss(14);
  EXPECT_THAT(RisingLosses(run), IsEmpty());
  v1::RoundRecord& last = AddRecord(run, v1::TRAIN_ROUND, phase);
  last.set_loss(28);
  ASSERT_THAT(RisingLosses(run), SizeIs(1));
  EXPECT_THAT(RisingLosses(run)[0], AllOf(HasSubstr("it was 15 at first and 28 before the last"),
                                          HasSubstr("auto_step_size: true")));
  EXPECT_THAT(ResultsText(run), HasSubstr("Warning: training made the loss worse"));
  // Where the loss at the end is known, it is what counts.
  RunSummary ended = run;
  ended.records.back().set_model_sha256("the end");
  v1::RoundRecord& end = AddRecord(ended, v1::FINAL_LOSS_ROUND, phase);
  end.set_base_sha256("the end");
  end.set_loss(29);
  EXPECT_THAT(RisingLosses(ended)[0], HasSubstr("it was 15 at first and 29 after 1 round ("));
  end.set_loss(14);
  EXPECT_THAT(RisingLosses(ended), IsEmpty());
  last.set_step_size(0.2);
  EXPECT_THAT(RisingLosses(run)[0], HasSubstr("0.2 is above 2/L = 0.1"));
  // Of other clients the loss may be higher by chance.
  last.set_sampled(5);
  last.set_loss(15.001);
  EXPECT_THAT(RisingLosses(run), IsEmpty());
  // From w* there is only one way.
  last.set_loss(28);
  EXPECT_THAT(RisingLosses(run), SizeIs(1));
  run.config.mutable_phases(static_cast<int>(phase))
      ->mutable_train()
      ->set_start(v1::Probe::OPTIMUM);
  EXPECT_THAT(RisingLosses(run), IsEmpty());
}

// Theorem 2.

TEST(TheoryTest, AddsUpItsTerms) {
  RunSummary run = OptimumRun();
  AddConstants(run);
  AddProbe(run, {10});
  AddTraining(run, 4, 10, 3);
  const absl::StatusOr<Theorem2> theorem = TheoryOf(run, RecordsOf(run, v1::TRAIN_ROUND));
  ASSERT_TRUE(theorem.ok()) << theorem.status();
  EXPECT_TRUE(theorem->holds());
  EXPECT_DOUBLE_EQ(theorem->rate, 1 - 0.5 * 0.1 * kStepSize * 10 * 0.5);
  EXPECT_DOUBLE_EQ(theorem->initial, 9 * 0.7);
  EXPECT_DOUBLE_EQ(theorem->floor, 8e-5);
  EXPECT_DOUBLE_EQ(theorem->At(0), 9 * 0.7 + 8e-5);
  EXPECT_DOUBLE_EQ(theorem->At(2), theorem->rate * theorem->rate * 9 * 0.7 + 8e-5);
}

TEST(TheoryTest, SaysWhichConditionsDoNotHold) {
  RunSummary run = OptimumRun();
  AddConstants(run);
  AddProbe(run, {10}).set_step_size(0.06);
  AddTraining(run, 4, 10, 3, /*server_rate=*/1);
  std::vector<v1::RoundRecord> rounds = RecordsOf(run, v1::TRAIN_ROUND);
  rounds[0].set_step_size(0.06);
  rounds[0].set_sampled(10);
  rounds[0].set_batch_size(5);
  const Theorem2 theorem = *TheoryOf(run, rounds);
  EXPECT_THAT(absl::StrJoin(theorem.broken, "\n"),
              AllOf(HasSubstr("α = 1 is above 1/4"), HasSubstr("above 1/L"),
                    HasSubstr("only 10 of 100 clients"), HasSubstr("batches of 5")));
  rounds[0].set_server_rate(0.2);
  EXPECT_THAT(absl::StrJoin(TheoryOf(run, rounds)->notes, "\n"), HasSubstr("above the 1/8"));
}

TEST(TheoryTest, DoesNotCoverRoundedOrClippedUpdates) {
  RunSummary run = OptimumRun();
  AddConstants(run);
  AddProbe(run, {10});
  AddTraining(run, 4, 10, 3);
  run.config.set_encoding(v1::INT8_WIRE);
  EXPECT_THAT(absl::StrJoin(TheoryOf(run, RecordsOf(run, v1::TRAIN_ROUND))->broken, "\n"),
              HasSubstr("INT8_WIRE"));
  run.config.clear_encoding();
  run.config.mutable_limits()->set_max_norm(0.5);
  EXPECT_TRUE(TheoryOf(run, RecordsOf(run, v1::TRAIN_ROUND))->holds());  // refused, not clipped
  run.config.mutable_limits()->set_norm_policy(v1::CLIP);
  EXPECT_THAT(absl::StrJoin(TheoryOf(run, RecordsOf(run, v1::TRAIN_ROUND))->broken, "\n"),
              HasSubstr("limits.max_norm 0.5"));
}

TEST(TheoryTest, AFloorFromASampleIsThatOfItsUpperEnd) {
  RunSummary run = OptimumRun();
  AddConstants(run);
  v1::RoundRecord& probe = AddProbe(run, {10});
  probe.set_reports(20);
  v1::DriftAtSteps& drift = *probe.mutable_drift(0);
  drift.set_unbiased_drift_squared(-1e-7);
  drift.set_interval_low(-4e-6);
  drift.set_interval_high(3e-6);
  AddTraining(run, 4, 10, 3);
  AddFixedPoint(run, 10, 0.1);
  const auto theory = [&] { return TheoryOf(run, RecordsOf(run, v1::TRAIN_ROUND)); };
  EXPECT_DOUBLE_EQ(theory()->floor, 20 * 3e-6 / 0.25);
  EXPECT_DOUBLE_EQ(Judge(run)->evidence[0].floor, 20 * 3e-6 / 0.25);
  EXPECT_THAT(absl::StrJoin(theory()->notes, "\n"), HasSubstr("20 of 100 clients"));
  // One client, say, tells nothing: no floor is not a floor of zero.
  v1::DriftAtSteps& unknown = *run.records[3].mutable_drift(0);
  unknown.set_unbiased_drift_squared(std::nan(""));
  unknown.set_interval_low(std::nan(""));
  unknown.set_interval_high(std::nan(""));
  EXPECT_THAT(std::string(theory().status().message()), HasSubstr("too small to tell; probe all"));
  EXPECT_TRUE(std::isnan(Judge(run)->evidence[0].floor));
}

TEST(TheoryTest, NamesWhatIsMissing) {
  RunSummary run = OptimumRun();
  AddTraining(run, 4, 10, 3);
  const auto message = [&](const RunSummary& of) {
    return std::string(TheoryOf(of, RecordsOf(of, v1::TRAIN_ROUND)).status().message());
  };
  EXPECT_THAT(message(run), HasSubstr("constants"));
  AddConstants(run);
  EXPECT_THAT(message(run),
              HasSubstr("add `phases { probe { point: OPTIMUM step_size: 0.01 steps: [10] }"));
  AddConstants(run, -1);
  EXPECT_THAT(message(run), HasSubstr("strongly convex"));
}

}  // namespace
}  // namespace leeway
