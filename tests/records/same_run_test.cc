#include "records/same_run.h"

#include <gtest/gtest.h>

#include "records/config.h"

namespace leeway {
namespace {

v1::RunConfig Config(const std::string& more) {
  return *ParseConfig("seed: 1 model { linear_regression {} } phases { optimum {} } " + more, "c");
}

TEST(SameRunTest, ARefusedChangeNamesTheFieldAndBothValues) {
  EXPECT_EQ(CompareConfigs(Config("cohort { size: 3 }"), Config("cohort { size: 5 }")).refused,
            "cohort.size is 3 there and 5 here");
  EXPECT_EQ(CompareConfigs(Config(""), Config("phases { evaluate {} }")).refused.substr(0, 22),
            "phases[1] is not set t");
  EXPECT_EQ(CompareConfigs(Config(""), Config("")).refused, "");
}

TEST(SameRunTest, WhenRoundsEndLimitsAndNameMayChange) {
  const ConfigChanges changes = CompareConfigs(
      Config("name: 'a' cohort { deadline_seconds: 5 }"),
      Config("name: 'b' cohort { deadline_seconds: 60 minimum_reports: 2 attempts: 9 } "
             "limits { max_norm: 2 }"));
  EXPECT_EQ(changes.refused, "");
  for (const char* one : {"name from \"a\" to \"b\"", "cohort.deadline_seconds from 5 to 60",
                          "cohort.attempts from 5 to 9", "cohort.minimum_reports from not set to 2",
                          "limits.max_norm from not set to 2"}) {
    EXPECT_NE(changes.allowed.find(one), std::string::npos) << changes.allowed;
  }
}

TEST(SameRunTest, ARunOfAnEarlierVersionHasTheDefaultsOfThisOne) {
  v1::RunConfig stored = Config("");
  stored.mutable_cohort()->clear_return_seconds();
  stored.mutable_limits()->clear_median_multiple();
  EXPECT_EQ(CompareConfigs(stored, Config("")).allowed, "");
}

}  // namespace
}  // namespace leeway
