#include "common/workers.h"

#include <gtest/gtest.h>

#include <numeric>

namespace leeway {
namespace {

TEST(WorkersTest, EveryTurnIsTakenOnceInEveryLoop) {
  for (const size_t threads : {0, 1, 2, 5}) {
    Workers workers(threads);
    for (size_t loop = 0; loop < 2000; ++loop) {
      const size_t turns = loop % 7;
      std::vector<int> taken(turns, 0);
      workers.Run(turns, [&](size_t i) { ++taken[i]; });
      EXPECT_EQ(taken, std::vector<int>(turns, 1));
    }
  }
}

}  // namespace
}  // namespace leeway
