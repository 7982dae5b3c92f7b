#include "common/model.h"

#include <gtest/gtest.h>

#include <atomic>

#include "common/digest.h"
#include "common/rng.h"

namespace leeway {
namespace {

constexpr size_t kSize = 300'001;  // three blocks

template <typename T>
void ExpectTheSameChange(bool float64) {
  ModelLayout layout;
  layout.tensors = {{"w", {kSize}}};
  layout.float64 = float64;
  Rng rng(1, 0, 0, Purpose::kTest);
  Vector<T> start(static_cast<Eigen::Index>(kSize));
  for (T& x : start) x = static_cast<T>(rng.Normal());
  const ModelPtr model = MakeModel(layout, Parameters(start));
  std::atomic<size_t> changed = 0;
  const auto change = [&](size_t begin, absl::Span<double> values) {
    EXPECT_LE(values.size(), kMostChanged);
    changed += values.size();
    for (size_t i = 0; i < values.size(); ++i) values[i] += 0.1 * static_cast<double>(begin + i);
  };
  Workers workers(3);
  const ModelPtr alone = ChangeModel(layout, *model, nullptr, change);
  EXPECT_EQ(changed, kSize);
  const ModelPtr together = ChangeModel(layout, *model, &workers, change);
  EXPECT_EQ(changed, 2 * kSize);
  EXPECT_EQ(alone->sha256, together->sha256);
  EXPECT_EQ(alone->file.view(), together->file.view());
  EXPECT_EQ(together->sha256, Sha256Hex(together->file.view()));
  const Vector<double> values = ValuesOf(layout, *together);
  for (const size_t i : {size_t{0}, size_t{4096}, size_t{131'072}, kSize - 1}) {
    const auto at = static_cast<Eigen::Index>(i);
    EXPECT_EQ(values[at], static_cast<T>(start[at] + 0.1 * static_cast<double>(i))) << i;
  }
}

TEST(ModelTest, WorkersChangeTheSameValuesToTheSameBits) {
  ExpectTheSameChange<float>(false);
  ExpectTheSameChange<double>(true);
}

}  // namespace
}  // namespace leeway
