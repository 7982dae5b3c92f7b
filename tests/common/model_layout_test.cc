#include "common/model_layout.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename Message>
Message Proto(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

absl::StatusOr<ModelLayout> Layout(const std::string& model, const std::string& schema) {
  return LayoutOf(Proto<v1::Model>(model), Proto<v1::DataSchema>(schema));
}

TEST(ModelLayoutTest, LinearRegressionIsOneVector) {
  const auto layout = Layout("linear_regression { intercept: false }", "feature_shape: [ 5, 6 ]");
  ASSERT_TRUE(layout.ok()) << layout.status();
  ASSERT_EQ(layout->tensors.size(), 1u);
  EXPECT_EQ(layout->tensors[0].name, "weight");
  EXPECT_THAT(layout->tensors[0].shape, ElementsAre(30));
  EXPECT_TRUE(layout->float64);
  EXPECT_TRUE(Layout("linear_regression {}", "feature_shape: 5 labels: true").ok());
}

// The names and shapes of torch.nn.Linear(30, 1).
TEST(ModelLayoutTest, LinearRegressionHasAnInterceptUnlessItIsSwitchedOff) {
  for (const std::string model :
       {"linear_regression {}", "linear_regression { intercept: true }"}) {
    const auto layout = Layout(model, "feature_shape: [ 5, 6 ]");
    ASSERT_TRUE(layout.ok()) << layout.status();
    ASSERT_EQ(layout->tensors.size(), 2u);
    EXPECT_EQ(layout->tensors[0].name, "weight");
    EXPECT_THAT(layout->tensors[0].shape, ElementsAre(1, 30));
    EXPECT_EQ(layout->tensors[1].name, "bias");
    EXPECT_THAT(layout->tensors[1].shape, ElementsAre(1));
  }
}

TEST(ModelLayoutTest, SoftmaxRegressionIsWeightThenBias) {
  const auto layout =
      Layout("softmax_regression { classes: 10 }", "feature_shape: [ 28, 28 ] labels: true");
  ASSERT_TRUE(layout.ok()) << layout.status();
  ASSERT_EQ(layout->tensors.size(), 2u);
  EXPECT_EQ(layout->tensors[0].name, "weight");
  EXPECT_THAT(layout->tensors[0].shape, ElementsAre(10, 784));
  EXPECT_EQ(layout->tensors[1].name, "bias");
  EXPECT_THAT(layout->tensors[1].shape, ElementsAre(10));
  EXPECT_EQ(layout->size(), 7850u);
}

TEST(ModelLayoutTest, RefusesWhatDoesNotFitByName) {
  const struct {
    std::string model, schema, message;
  } cases[] = {
      {"", "feature_shape: 3", "model.kind"},
      {"softmax_regression {}", "feature_shape: 3", "softmax_regression.classes"},
      {"softmax_regression { classes: 1 }", "feature_shape: 3", "softmax_regression.classes"},
      {"softmax_regression { classes: 2 l2: -1 }", "feature_shape: 3", "softmax_regression.l2"},
      {"linear_regression { l2: nan }", "feature_shape: 3", "linear_regression.l2"},
      {"linear_regression {}", "feature_shape: 0", "feature_shape"},
      {"linear_regression {}", "feature_shape: [ 4294967296, 4294967296 ]", "feature_shape"},
      {"softmax_regression { classes: 4294967295 }", "feature_shape: 1000", "classes"},
  };
  for (const auto& c : cases) {
    const auto layout = Layout(c.model, c.schema);
    EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument) << c.model;
    EXPECT_THAT(layout.status().message(), HasSubstr(c.message));
  }
}

TEST(ModelLayoutTest, ForgetGatesStartOpenAndOtherBiasesAtZero) {
  v1::Model model;
  model.mutable_lstm()->set_vocabulary(5);
  model.mutable_lstm()->set_embedding(2);
  model.mutable_lstm()->add_hidden(3);
  v1::DataSchema schema;
  schema.add_feature_shape(4);
  schema.set_labels(true);
  const auto layout = LayoutOf(model, schema);
  ASSERT_TRUE(layout.ok()) << layout.status();
  const auto w = std::get<Vector<float>>(InitialModel(*layout, 1));
  Eigen::Index next = 0;
  for (const TensorSpec& tensor : layout->tensors) {
    const auto size = static_cast<Eigen::Index>(tensor.size());
    if (tensor.name == "lstm1.bias") {
      Vector<float> expected = Vector<float>::Zero(12);
      expected.segment(3, 3).setOnes();  // gates: input, forget, cell, output
      EXPECT_EQ(w.segment(next, size), expected);
    }
    next += size;
  }
}

TEST(ModelLayoutTest, ConvexModelsStartAtZero) {
  const auto layout = Layout("softmax_regression { classes: 3 }", "feature_shape: 4");
  EXPECT_EQ(std::get<Vector<double>>(InitialModel(*layout, 5)), Vector<double>::Zero(15));
}

TEST(ModelLayoutTest, InitialValuesAreWithinBoundsAndNamedBySeed) {
  ModelLayout layout;
  layout.tensors = {{"a", {1000}, 0.5}, {"zero", {10}, 0}, {"b", {1000}, 0.01}};
  layout.float64 = false;
  const auto w = std::get<Vector<float>>(InitialModel(layout, 1));
  EXPECT_LE(w.head(1000).cwiseAbs().maxCoeff(), 0.5f);
  EXPECT_GT(w.head(1000).cwiseAbs().maxCoeff(), 0.49f);
  EXPECT_EQ(w.segment(1000, 10), Vector<float>::Zero(10));
  EXPECT_LE(w.tail(1000).cwiseAbs().maxCoeff(), 0.01f);
  EXPECT_NEAR(w.head(1000).mean(), 0, 0.05);
  EXPECT_EQ(w, std::get<Vector<float>>(InitialModel(layout, 1)));
  EXPECT_NE(w, std::get<Vector<float>>(InitialModel(layout, 2)));
}

}  // namespace
}  // namespace leeway
