#include "cli/drift.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/run.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

TEST(DriftCommandTest, NoRunIsAUsageError) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(DriftCommand({.directory = "/no/such/run", .data = "", .json = false}), kExitUsage);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("leeway run CONFIG"));
}

}  // namespace
}  // namespace leeway
