#include "records/release_evidence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "records/verdict.h"
#include "records/verdict_text.h"
#include "run_fixture.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A network that has settled at a loss of 0.5 + lost, where synchronised steps end at 0.5 and
// the best constant answer has 1.5.
v1::ReleaseResult Settled(uint32_t h, double lost) {
  v1::ReleaseResult result;
  result.set_h(h);
  result.set_step_size(0.1);
  result.set_rounds(5);
  result.set_repeats(1);
  result.set_clients(100);
  result.set_start_loss(0.5 + lost);
  result.set_local_loss(0.5 + lost);
  result.set_synchronised_loss(0.5);
  result.set_difference(lost);
  result.set_standard_error(1e-3);
  result.set_interval_low(lost - 2e-3);
  result.set_interval_high(lost + 2e-3);
  result.set_efficiency(0);
  result.set_constant_loss(1.5);
  result.set_lost(lost);
  result.set_losers(70);
  return result;
}

RunSummary Network() {
  RunSummary run;
  run.directory = "runs/network";
  run.begun = true;
  run.state = v1::DONE;
  run.clients = 100;
  run.config.mutable_model()->mutable_mlp();
  run.config.add_phases()->mutable_train();
  return run;
}

RunSummary With(const std::vector<v1::ReleaseResult>& results) {
  RunSummary run = Network();
  v1::ReleaseTest& test = *run.config.add_phases()->mutable_release();
  for (const v1::ReleaseResult& result : results) {
    test.add_steps(result.h());
    *AddRecord(run, v1::RELEASE_ROUND, 1).mutable_release() = result;
  }
  return run;
}

Finding FindingOf(const v1::ReleaseResult& result) {
  return CollectReleases(With({result})).front().finding;
}

TEST(ReleaseEvidenceTest, WhatIsLostDecides) {
  EXPECT_EQ(FindingOf(Settled(10, 0.005)), Finding::kHarmless);
  EXPECT_EQ(FindingOf(Settled(10, 0.02)), Finding::kUncertain);
  EXPECT_EQ(FindingOf(Settled(10, 0.05)), Finding::kConflict);
}

TEST(ReleaseEvidenceTest, ChanceIsNoConflictAndNotHarmlessEither) {
  v1::ReleaseResult result = Settled(10, 0.05);
  result.set_standard_error(0.06);
  EXPECT_EQ(FindingOf(result), Finding::kUncertain);
  result.set_standard_error(0.04);
  EXPECT_EQ(FindingOf(result), Finding::kConflict);
  // Of a sample the interval must exclude 0.
  result.set_interval_low(-0.03);
  result.set_clients(50);
  EXPECT_EQ(FindingOf(result), Finding::kUncertain);
  // A wide interval around a small loss: another sample could show a conflict.
  result = Settled(10, 0.005);
  result.set_interval_high(0.04);
  result.set_standard_error(0.008);
  result.set_clients(50);
  EXPECT_EQ(FindingOf(result), Finding::kUncertain);
  // Of all clients with full batches the loss is known, as that of a fixed point is.
  result.set_clients(100);
  EXPECT_EQ(FindingOf(result), Finding::kHarmless);
}

// Student's t for two degrees of freedom is 4.303.
TEST(ReleaseEvidenceTest, OtherBatchesMustNotUndoIt) {
  v1::ReleaseResult result = Settled(10, 0.05);
  result.set_batch_error(0.01);
  EXPECT_EQ(FindingOf(result), Finding::kUncertain);  // taken once: nobody knows
  result.set_repeats(3);
  EXPECT_EQ(FindingOf(result), Finding::kConflict);
  result.set_batch_error(0.012);
  EXPECT_EQ(FindingOf(result), Finding::kUncertain);
  result = Settled(10, 0.005);
  result.set_repeats(3);
  result.set_batch_error(0.0057);
  EXPECT_EQ(FindingOf(result), Finding::kHarmless);
  result.set_batch_error(0.0059);
  EXPECT_EQ(FindingOf(result), Finding::kUncertain);
}

TEST(ReleaseEvidenceTest, ATestThatComesTooEarlySaysSo) {
  v1::ReleaseResult result = Settled(10, 0.05);
  result.set_start_loss(1.2);  // local steps still gain 0.65
  result.set_efficiency(0.93);
  const std::vector<ReleaseEvidence> all = CollectReleases(With({result}));
  EXPECT_EQ(all.front().finding, Finding::kUncertain);
  EXPECT_THAT(all.front().doubt, HasSubstr("training has not settled"));
  result.set_constant_loss(0.4);  // a model that knows nothing
  EXPECT_THAT(CollectReleases(With({result})).front().doubt, HasSubstr("best constant answer"));
}

TEST(ReleaseEvidenceTest, ANetworkHasAVerdict) {
  const RunSummary run = With({Settled(1, 0), Settled(10, 0.004), Settled(50, 0.12)});
  const absl::StatusOr<Verdict> verdict = Judge(run);
  ASSERT_TRUE(verdict.ok()) << verdict.status();
  EXPECT_EQ(verdict->finding, Finding::kConflict);
  EXPECT_EQ(verdict->largest_harmless_h, 10u);
  EXPECT_THAT(verdict->sentence, HasSubstr("Clients conflict from H = 50"));
  EXPECT_THAT(verdict->sentence, HasSubstr("12 % of what the model explains, and 70 of 100"));
  EXPECT_THAT(verdict->sentence, HasSubstr("Up to H = 10 it does not hurt"));
  EXPECT_THAT(VerdictText(*verdict), HasSubstr("Release test (phase 2)"));
  EXPECT_EQ(VerdictObject(*verdict)["releases"].size(), 3u);
}

TEST(ReleaseEvidenceTest, TheLastTestOfAStepCounts) {
  RunSummary run = With({Settled(10, 0.004)});
  *AddRecord(run, v1::RELEASE_ROUND, 1).mutable_release() = Settled(10, 0.05);
  const std::vector<ReleaseEvidence> all = CollectReleases(run);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all.front().finding, Finding::kConflict);
}

TEST(ReleaseEvidenceTest, WhatIsMissingIsNotHarmless) {
  RunSummary run = With({Settled(10, 0.004)});
  run.config.mutable_phases(1)->mutable_release()->add_steps(50);
  run.state = v1::RUNNING;
  EXPECT_THAT(MissingReleases(run), ElementsAre(50));
  const absl::StatusOr<Verdict> verdict = Judge(run);
  ASSERT_TRUE(verdict.ok());
  EXPECT_EQ(verdict->finding, Finding::kUncertain);
  EXPECT_THAT(verdict->sentence, HasSubstr("H = 50 is not complete yet"));
}

TEST(ReleaseEvidenceTest, ANetworkWithoutATestIsToldToAddOne) {
  const RunSummary run = Network();
  EXPECT_THAT(std::string(Judge(run).status().message()), HasSubstr("add a release phase"));
}

}  // namespace
}  // namespace leeway
