#include "common/fit_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace leeway {
namespace {

using ::testing::HasSubstr;

const std::vector<TensorSpec> kModel = {{"weight", {2, 3}}, {"bias", {2}}};

std::string File(const std::vector<TensorSpec>& tensors, const Parameters& values) {
  return EncodeModel(tensors, values);
}

Vector<double> Count(Eigen::Index n) {
  return Vector<double>::LinSpaced(n, 1, static_cast<double>(n));
}

TEST(FitModelTest, TensorsMayComeInAnyOrder) {
  const auto same = FitModel(File(kModel, Count(8)), kModel, true, "f");
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(std::get<Vector<double>>(*same), Count(8));
  const auto other = FitModel(File({kModel[1], kModel[0]}, Count(8)), kModel, true, "f");
  ASSERT_TRUE(other.ok()) << other.status();
  Vector<double> expected(8);
  expected << 3, 4, 5, 6, 7, 8, 1, 2;
  EXPECT_EQ(std::get<Vector<double>>(*other), expected);
}

TEST(FitModelTest, ErrorsNameTheTensorAndBothShapes) {
  const auto why = [](const std::vector<TensorSpec>& tensors, const Parameters& values) {
    return std::string(FitModel(File(tensors, values), kModel, true, "f").status().message());
  };
  EXPECT_EQ(why({{"weight", {3, 2}}, {"bias", {2}}}, Count(8)),
            "f: tensor \"weight\" has shape [3,2], the model's has [2,3]");
  EXPECT_THAT(why({{"weight", {2, 3}}}, Count(6)),
              HasSubstr("\"bias\" of shape [2], which the model has, is missing"));
  EXPECT_THAT(why({{"weight", {2, 3}}, {"bias", {2}}, {"scale", {1}}}, Count(9)),
              HasSubstr("\"scale\" of shape [1] is none of the model's"));
  EXPECT_THAT(why(kModel, Vector<float>(Count(8).cast<float>())),
              HasSubstr("its values are F32, the model's F64"));
  EXPECT_FALSE(FitModel("nonsense", kModel, true, "f").ok());
}

}  // namespace
}  // namespace leeway
