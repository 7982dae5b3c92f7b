#include "records/verdict_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/records/run_fixture.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Verdict ConflictVerdict() {
  RunSummary run = OptimumRun();
  AddConstants(run);
  AddProbe(run, {1, 10});
  AddFixedPoint(run, 1, 0);
  AddFixedPoint(run, 10, 5);
  AddFixedPoint(run, 200, 1.0 / 3);
  return *Judge(run);
}

TEST(VerdictJsonTest, HasTheAgreedKeys) {
  const auto json = nlohmann::json::parse(VerdictJson(ConflictVerdict()));
  EXPECT_EQ(json["verdict"], "conflict");
  EXPECT_EQ(json["largest_harmless_h"], 1);
  EXPECT_THAT(json["sentence"].get<std::string>(), HasSubstr("Clients conflict from H = 10"));
  ASSERT_EQ(json["evidence"].size(), 3u);
  const auto& one = json["evidence"][1];
  EXPECT_EQ(one["h"], 10);
  EXPECT_EQ(one["verdict"], "conflict");
  EXPECT_EQ(one["gap"].get<double>(), 5 * kStandardError);
  for (const char* key :
       {"lost", "explained", "sampling_error", "gap_in_standard_errors", "average_drift_squared",
        "drift_bound", "interval_low", "interval_high", "floor", "distance_squared"}) {
    EXPECT_TRUE(one[key].is_number()) << key;
  }
  // H = 200 was not probed.
  EXPECT_TRUE(json["evidence"][2]["drift_bound"].is_null());
  EXPECT_THAT(VerdictJson(ConflictVerdict()), HasSubstr("0.3333333333333333"));
  ASSERT_EQ(json["warnings"].size(), 1u);
}

TEST(VerdictJsonTest, NoHarmlessStepsIsNull) {
  RunSummary run = OptimumRun();
  AddFixedPoint(run, 2, 5);
  EXPECT_TRUE(nlohmann::json::parse(VerdictJson(*Judge(run)))["largest_harmless_h"].is_null());
}

TEST(VerdictTextTest, HasTheSentenceATableAndTheWarnings) {
  const std::string text = VerdictText(ConflictVerdict());
  EXPECT_THAT(text, HasSubstr("with local steps of 0.01 FedAvg settles 0.1 above"));
  EXPECT_THAT(text,
              HasSubstr("   10       0.1  20.00 %           5  1e-06         0.001  conflict\n"));
  EXPECT_THAT(text,
              HasSubstr("  200  0.006667   1.33 %      0.3333      -             -  uncertain\n"));
  EXPECT_THAT(text, HasSubstr("\nNote: ρ² was not measured at H = 200"));
  // All clients were measured: an interval would say nothing.
  EXPECT_THAT(text, Not(HasSubstr("interval")));
}

TEST(VerdictTextTest, ShowsIntervalsOfSamples) {
  Verdict verdict = ConflictVerdict();
  verdict.evidence[1].interval_low = -1e-7;
  EXPECT_THAT(VerdictText(verdict), HasSubstr("-1e-07 … 1e-06"));
}

TEST(EvidenceCsvTest, HasOneRowPerStep) {
  const std::string csv = EvidenceCsv(ConflictVerdict());
  EXPECT_THAT(csv, HasSubstr("h,step_size,gap,"));
  EXPECT_THAT(csv, HasSubstr("\n10,0.01,0.10000000000000001,0.2"));
  EXPECT_THAT(csv, HasSubstr(",,,,,,0,,,,,uncertain\n"));
}

TEST(ResultsTextTest, EndsWithTheVerdict) {
  RunSummary run = OptimumRun();
  EXPECT_THAT(ResultsText(run), Not(HasSubstr("Verdict")));
  AddFixedPoint(run, 10, 0.01);
  EXPECT_THAT(ResultsText(run), HasSubstr("\nVerdict: Heterogeneity does not hurt here"));
  EXPECT_THAT(RunText(run), HasSubstr("\nVerdict: Heterogeneity does not hurt here"));
}

}  // namespace
}  // namespace leeway
