#include "common/nearest_word.h"

#include <gtest/gtest.h>

namespace leeway {
namespace {

TEST(NearestWordTest, AWordThatIsContinuedComesBeforeOneWithFewerChanges) {
  EXPECT_EQ(NearestWord("--client", {"--columns", "--client-column", "--client-from"}),
            "--client-column");
}

TEST(NearestWordTest, AFewChangedLettersAreFound) {
  EXPECT_EQ(NearestWord("modle", {"seed", "model", "phases"}), "model");
}

TEST(NearestWordTest, NothingIsNearAWordOfOtherLetters) {
  EXPECT_EQ(NearestWord("--zzzzzzzz", {"--columns", "--out"}), "");
}

}  // namespace
}  // namespace leeway
