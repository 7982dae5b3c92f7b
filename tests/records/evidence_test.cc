#include "records/evidence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/records/run_fixture.h"

namespace leeway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Evidence Only(const RunSummary& run) { return CollectEvidence(run).at(0); }

// A gap of 0.1 standard errors at h steps, found with this |G|, where no client but
// one flat one has a convexity below 0.5.
RunSummary RunWith(uint32_t h, double norm, double step_size = 0.05, double flattest = 1e-9) {
  RunSummary run = OptimumRun();
  AddConstants(run);
  run.records.back().mutable_constants()->set_smallest_client_convexity(flattest);
  v1::FixedPointResult& point = AddFixedPoint(run, h, 0.1);
  point.set_step_size(step_size);
  point.set_pseudo_gradient_norm(norm);
  return run;
}

// The same data with x and y times sqrt(scale): w stays what it is.
void ScaleLoss(double scale, RunSummary& run) {
  for (v1::RoundRecord& record : run.records) {
    record.set_loss(scale * record.loss());
    record.set_gradient_norm(scale * record.gradient_norm());
    record.set_dissimilarity(scale * scale * record.dissimilarity());
    if (record.has_constants()) {
      v1::ConstantsResult& constants = *record.mutable_constants();
      constants.set_smoothness(scale * constants.smoothness());
      constants.set_convexity(scale * constants.convexity());
      constants.set_largest_client_smoothness(scale * constants.largest_client_smoothness());
      constants.set_smallest_client_convexity(scale * constants.smallest_client_convexity());
    }
    if (record.has_yardstick()) {
      v1::Yardstick& yardstick = *record.mutable_yardstick();
      yardstick.set_constant_loss(scale * yardstick.constant_loss());
      yardstick.set_sampling_error(scale * yardstick.sampling_error());
      yardstick.set_sampling_error_high(scale * yardstick.sampling_error_high());
    }
    if (record.has_fixed_point()) {
      v1::FixedPointResult& point = *record.mutable_fixed_point();
      point.set_step_size(point.step_size() / scale);
      point.set_loss_gap(scale * point.loss_gap());
      point.set_loss_standard_error(scale * point.loss_standard_error());
      point.set_pseudo_gradient_norm(scale * point.pseudo_gradient_norm());
    }
  }
}

// Away from rest by a, the loss may change by L a (|w_H - w*| + a/2); a tenth of the
// threshold is 0.1 * 0.01 * 0.5, so that a = 0.00614 is the most.
constexpr double kAway = 0.00614;

TEST(SettledTest, GoesByTheWayThatIsLeft) {
  // The gradient itself at one step; phi(L)/L = 1/h times as convex at h.
  for (const auto& [h, convexity] : {std::pair(1u, 0.5), std::pair(100u, 0.005)}) {
    EXPECT_TRUE(Only(RunWith(h, 0.99 * kAway * convexity)).settled) << h;
    EXPECT_FALSE(Only(RunWith(h, 1.01 * kAway * convexity)).settled) << h;
  }
  // With all clients alike 1 - (1 - eta mu)^h is more: here all but 1, over eta h.
  EXPECT_TRUE(Only(RunWith(10'000, 0.99 * kAway * 0.002, 0.05, 0.5)).settled);
  EXPECT_FALSE(Only(RunWith(10'000, 1.01 * kAway * 0.002, 0.05, 0.5)).settled);
}

TEST(SettledTest, TheUnitOfTheLossDoesNotMatter) {
  for (const double scale : {1e-10, 1e-4, 1.0, 1e6}) {
    RunSummary near = RunWith(100, 0.99 * kAway * 0.005);
    RunSummary far = RunWith(100, 1.01 * kAway * 0.005);
    ScaleLoss(scale, near);
    ScaleLoss(scale, far);
    EXPECT_EQ(Only(near).finding, Finding::kHarmless) << scale << ": " << Only(near).doubt;
    EXPECT_EQ(Only(far).finding, Finding::kUncertain) << scale;
  }
}

TEST(SettledTest, HavingMovedByLessThanTheToleranceIsNotRest) {
  RunSummary run = RunWith(100, 5);
  ScaleLoss(1e-10, run);
  EXPECT_EQ(Only(run).finding, Finding::kUncertain);
  EXPECT_THAT(Only(run).doubt, AllOf(HasSubstr("did not come to rest (|G| = 5e-10)"),
                                     HasSubstr("lower fixed_point.tolerance")));
}

TEST(SettledTest, LongStepsHaveFewGuarantees) {
  // Up to 2/L every step shrinks distances if all clients are convex.
  EXPECT_TRUE(Only(RunWith(10, 1e-11, 0.075, 0.5)).settled);
  EXPECT_FALSE(Only(RunWith(10, 1e-11, 0.075, 0)).settled);
  EXPECT_FALSE(Only(RunWith(10, 1e-11, 0.11, 0.5)).settled);
  EXPECT_TRUE(Only(RunWith(1, 1e-11, 0.11, 0.5)).settled);  // plain gradients
}

TEST(SettledTest, WithoutConvexityGoesByTheClientsGradients) {
  const auto settled = [](double norm, double scale, bool flat) {
    RunSummary run = OptimumRun();
    if (flat) AddConstants(run, 0);
    AddFixedPoint(run, 10, 0.1).set_pseudo_gradient_norm(norm / scale);
    ScaleLoss(scale, run);
    return Only(run).settled;
  };
  for (const bool flat : {false, true}) {
    EXPECT_TRUE(settled(1e-9, 1, flat));
    EXPECT_FALSE(settled(1.1e-9, 1, flat));
    EXPECT_TRUE(settled(0.9 * 5e-15, 1e-6, flat));
    EXPECT_FALSE(settled(1.1 * 5e-15, 1e-6, flat));
  }
  // What Lanczos iteration finds of F is no bound.
  RunSummary run = RunWith(10, 1e-8, 0.05, 0);
  EXPECT_TRUE(Only(run).settled);
  run.records[2].mutable_constants()->set_exact(false);
  EXPECT_FALSE(Only(run).settled);
}

TEST(OptimumTest, AGapOverNoOptimumProvesNothing) {
  RunSummary run = RunWith(10, 1e-11);
  // |grad F|^2 / (2 mu) beside 0.0005.
  run.records[1].set_gradient_norm(0.022);
  EXPECT_EQ(Only(run).finding, Finding::kHarmless);
  run.records[1].set_gradient_norm(0.023);
  EXPECT_EQ(Only(run).finding, Finding::kUncertain);
  EXPECT_THAT(Only(run).doubt, HasSubstr("(|grad F| = 0.023); raise optimum.max_rounds"));
  run.config.mutable_phases(1)->mutable_optimum()->set_tolerance(0.1);
  EXPECT_THAT(Only(run).doubt, HasSubstr("lower optimum.tolerance"));
  // w* is the best trial, not the last.
  run.records[0].set_gradient_norm(1e-11);
  EXPECT_EQ(Only(run).finding, Finding::kHarmless);
}

TEST(OptimumTest, TheRemedyNamesTheScaleOfTheColumns) {
  RunSummary run = RunWith(10, 1e-11);
  run.records[1].set_gradient_norm(0.023);
  EXPECT_THAT(Only(run).doubt, Not(HasSubstr("--scale")));  // kappa is 40
  run.records[2].mutable_constants()->set_largest_client_smoothness(1.4e6);
  EXPECT_THAT(Only(run).doubt,
              AllOf(HasSubstr("kappa = L/mu is 2.8e+06"), HasSubstr("--scale standard"),
                    HasSubstr("or raise optimum.max_rounds"), Not(HasSubstr("scale the data up"))));
  run.config.mutable_phases(1)->mutable_optimum()->set_tolerance(0.1);
  EXPECT_THAT(Only(run).doubt,
              AllOf(HasSubstr("--scale standard"), HasSubstr("or lower optimum.tolerance")));
  // Nothing is wrong with the columns beside each other: the data as a whole are small.
  run.records[2].mutable_constants()->set_largest_client_smoothness(20);
  EXPECT_THAT(Only(run).doubt, HasSubstr("a scale near 1 (`leeway data import csv --scale "));
}

TEST(OptimumTest, WithoutConstantsGoesByItsTolerance) {
  RunSummary run = OptimumRun();
  AddFixedPoint(run, 10, 0.1);
  run.records[1].set_gradient_norm(5e-10);  // of gradients of 5
  EXPECT_THAT(Only(run).doubt, IsEmpty());
  run.records[1].set_gradient_norm(6e-10);
  EXPECT_THAT(Only(run).doubt, HasSubstr("raise optimum.max_rounds"));
  run.config.mutable_phases(1)->mutable_optimum()->set_tolerance(1e-3);
  EXPECT_THAT(Only(run).doubt, IsEmpty());
}

TEST(ClientsTest, LossesOfDifferentClientsAreNotCompared) {
  for (const size_t at : {1, 3, 4}) {  // at w*, of the constant answer and at w_H
    RunSummary run = RunWith(10, 1e-11);
    run.records[at].set_reports(99);
    EXPECT_EQ(Only(run).finding, Finding::kUncertain);
    EXPECT_THAT(Only(run).doubt, AllOf(HasSubstr("99"), HasSubstr("of 100 clients; run it again")));
  }
  // On the way to either it does not matter.
  RunSummary run = RunWith(10, 1e-11);
  run.records[0].set_reports(99);
  EXPECT_EQ(Only(run).finding, Finding::kHarmless);
}

TEST(ResolutionTest, WhatTheSumsDoNotResolveIsNotHarmless) {
  RunSummary run = RunWith(100, 0);
  EXPECT_EQ(Only(run).finding, Finding::kHarmless);
  run.records.back().mutable_fixed_point()->set_resolution(1.01 * kAway * 0.005);
  EXPECT_EQ(Only(run).finding, Finding::kUncertain);
  EXPECT_THAT(Only(run).doubt, AllOf(HasSubstr("|G| = 0 is known to 3.1e-05 only"),
                                     HasSubstr("leave out max_update")));
  run = RunWith(100, 0);
  run.records.back().mutable_fixed_point()->set_optimum_resolution(0.03);
  EXPECT_EQ(Only(run).finding, Finding::kUncertain);
  EXPECT_THAT(Only(run).doubt, HasSubstr("|grad F| = 1e-11 is known to 0.03 only"));
}

TEST(YardstickTest, WithoutOneThereIsNotEnoughEvidence) {
  RunSummary run = RunWith(10, 1e-11);
  run.records[3].clear_yardstick();
  EXPECT_EQ(Only(run).finding, Finding::kUncertain);
  EXPECT_THAT(Only(run).doubt, HasSubstr("best constant answer"));
}

TEST(YardstickTest, AModelThatExplainsNothingHasNothingToLose) {
  RunSummary run = RunWith(10, 1e-11);
  run.records[3].mutable_yardstick()->set_constant_loss(0.49);
  EXPECT_EQ(Only(run).finding, Finding::kUncertain);
  EXPECT_THAT(Only(run).doubt, HasSubstr("explains nothing: its loss 0.5 is not below"));
}

TEST(YardstickTest, TheLastCompleteOneCounts) {
  RunSummary run = RunWith(10, 1e-11);
  run.records.back().mutable_fixed_point()->set_loss_gap(0.1);
  EXPECT_EQ(Only(run).finding, Finding::kConflict);
  run.records[3].mutable_yardstick()->set_sampling_error(std::nan(""));
  run.records[3].mutable_yardstick()->set_sampling_error_high(std::nan(""));
  EXPECT_EQ(Only(run).finding, Finding::kUncertain);  // nobody knows whether it is more than chance
  AddYardstick(run);
  EXPECT_EQ(Only(run).finding, Finding::kConflict);
}

}  // namespace
}  // namespace leeway
