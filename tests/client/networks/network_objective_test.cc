#include "client/networks/network_objective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

#include "client/networks/architectures.h"
#include "common/model_layout.h"
#include "tests/client/networks/check.h"
#include "tests/client/synthetic.h"

namespace leeway::networks {
namespace {

using ::testing::HasSubstr;
using testing_data::Array;

constexpr char kCnn[] = "cnn { classes: 5 filters: 2 filters: 3 hidden: 6 }";
constexpr char kLstm[] = "lstm { vocabulary: 7 embedding: 3 hidden: 4 }";

template <typename T>
std::vector<T> Integers(size_t count, uint64_t limit, uint64_t seed) {
  Rng rng(seed, 0, 0, Purpose::kTest);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(rng.Below(limit));
  return values;
}

Dataset Images(uint64_t n) {
  Dataset data;
  data.id = "client-7";
  const Vector<float> x = Random<float>(static_cast<Index>(n * 64), 1);
  data.train = {Array<float>({n, 8, 8}, {x.begin(), x.end()}),
                Array<int64_t>({n}, Integers<int64_t>(n, 5, 2))};
  data.test = data.train;
  return data;
}

// Sequences of 1 to 6 tokens and then padding; the first has none.
Dataset Sentences(uint64_t n) {
  Dataset data;
  data.id = "client-7";
  std::vector<int32_t> x = Integers<int32_t>(n * 6, 7, 1), y = Integers<int32_t>(n * 6, 6, 2);
  for (size_t i = 0; i < y.size(); ++i) y[i] = i % 6 < i / 6 % 7 ? y[i] + 1 : kPadToken;
  data.train = {Array<int32_t>({n, 6}, x), Array<int32_t>({n, 6}, y)};
  data.test = data.train;
  return data;
}

std::unique_ptr<Objective<float>> Make(const char* model, const Dataset& data) {
  auto objective = MakeNetworkObjective(ModelOf(model), data);
  EXPECT_TRUE(objective.ok()) << objective.status();
  return *std::move(objective);
}

Vector<float> Start(const char* model, const v1::DataSchema& schema) {
  return Random<float>(static_cast<Index>(LayoutOf(ModelOf(model), schema)->size()), 9, 0.5);
}

std::vector<uint32_t> RowsFrom(uint32_t first, uint32_t end) {
  std::vector<uint32_t> rows(end - first);
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

// More rows than one chunk holds (256 for models this small).
constexpr uint32_t kMany = 700;

TEST(NetworkObjectiveTest, ChunkedFullBatchIsTheMeanOverAllRows) {
  const auto objective = Make(kCnn, Images(kMany));
  const Vector<float> w = Start(kCnn, SchemaOf({8, 8}));
  ASSERT_GT(kMany, MakeNetwork<float>(ModelOf(kCnn), SchemaOf({8, 8}))->largest().examples);
  Vector<float> full(w.size()), part(w.size());
  const double loss = objective->Evaluate(w, {}, full);

  double sum = 0;
  Vector<double> total = Vector<double>::Zero(w.size());
  for (uint32_t first = 0; first < kMany; first += 70) {
    sum += 70 * objective->Evaluate(w, RowsFrom(first, first + 70), part);
    total += 70 * part.cast<double>();
  }
  EXPECT_NEAR(loss, sum / kMany, 1e-6);
  EXPECT_LT((full.cast<double>() - total / kMany).norm(), 2e-6 * full.norm());

  // All rows by name are the same batch, to the bit.
  EXPECT_EQ(objective->Evaluate(w, RowsFrom(0, kMany), part), loss);
  EXPECT_EQ(part, full);
}

TEST(NetworkObjectiveTest, OneLargeBatchEqualsTheChunks) {
  const auto objective = Make(kCnn, Images(kMany));
  const v1::DataSchema schema = SchemaOf({8, 8});
  const Vector<float> w = Start(kCnn, schema);
  Vector<float> full(w.size());
  const double loss = objective->Evaluate(w, {}, full);

  const auto network = MakeNetwork<float>(ModelOf(kCnn), schema, kMany);
  const Dataset data = Images(kMany);
  const std::vector<float> x = data.train.x.As<float>();
  const std::vector<int64_t> y = data.train.y.As<int64_t>();
  std::copy(x.begin(), x.end(), network->batch());
  std::transform(y.begin(), y.end(), network->targets(),
                 [](int64_t label) { return static_cast<int32_t>(label); });
  Vector<float> gradient(w.size());
  const Outcome outcome =
      network->Train(w.data(), {kMany}, 1.0f / kMany, nullptr, gradient.data(), Write::kSet);
  EXPECT_NEAR(outcome.loss_sum / kMany, loss, 1e-6);
  EXPECT_LT((gradient - full).norm(), 2e-6f * full.norm());
}

TEST(NetworkObjectiveTest, TextLossIsTheMeanOverTokensThatCount) {
  const auto objective = Make(kLstm, Sentences(kMany));
  const Vector<float> w = Start(kLstm, SchemaOf({6}));
  Vector<float> full(w.size()), part(w.size());
  const double loss = objective->Evaluate(w, {}, full);
  const TestResult result = objective->Test(w);
  EXPECT_EQ(result.examples, 21u * (kMany / 7));  // 0 + 1 + ... + 6 in each seven
  EXPECT_NEAR(loss, result.loss_sum / static_cast<double>(result.examples), 1e-6);
  EXPECT_GT(result.correct, 0u);
  EXPECT_LT(result.correct, result.examples);

  // Sentences 1 and 6 have 1 and 6 tokens.
  Vector<float> one(w.size()), six(w.size());
  const std::vector<uint32_t> first = {1}, second = {6}, both = {1, 6};
  const double expected =
      (objective->Evaluate(w, first, one) + 6 * objective->Evaluate(w, second, six)) / 7;
  EXPECT_NEAR(objective->Evaluate(w, both, part), expected, 1e-6);
  EXPECT_LT((part - (one + 6 * six) / 7).norm(), 1e-6f * part.norm());
}

TEST(NetworkObjectiveTest, ABatchOfPaddingOnlyHasNoLossAndNoGradient) {
  const auto objective = Make(kLstm, Sentences(7));
  const Vector<float> w = Start(kLstm, SchemaOf({6}));
  Vector<float> gradient = Vector<float>::Ones(w.size());
  const std::vector<uint32_t> rows = {0};
  EXPECT_EQ(objective->Evaluate(w, rows, gradient), 0);
  EXPECT_EQ(gradient.norm(), 0);
}

TEST(NetworkObjectiveTest, LossAloneIsThatOfEvaluate) {
  const auto cnn = Make(kCnn, Images(50));
  const Vector<float> w = Start(kCnn, SchemaOf({8, 8}));
  Vector<float> gradient(w.size()), scratch(w.size());
  EXPECT_NEAR(cnn->Loss(w, scratch), cnn->Evaluate(w, {}, gradient), 1e-6);
}

TEST(NetworkObjectiveTest, BytesAreScaledToOne) {
  Dataset bytes = Images(9), floats = Images(9);
  const std::vector<uint8_t> pixels = Integers<uint8_t>(9 * 64, 256, 3);
  std::vector<float> scaled(pixels.begin(), pixels.end());
  for (float& x : scaled) x /= 255;
  bytes.train.x = Array<uint8_t>({9, 8, 8}, pixels);
  floats.train.x = Array<float>({9, 8, 8}, scaled);
  const Vector<float> w = Start(kCnn, SchemaOf({8, 8}));
  Vector<float> a(w.size()), b(w.size());
  EXPECT_EQ(Make(kCnn, bytes)->Evaluate(w, {}, a), Make(kCnn, floats)->Evaluate(w, {}, b));
  EXPECT_EQ(a, b);
}

TEST(NetworkObjectiveTest, SameBitsInEveryThreadAndBetweenOtherModels) {
  const auto cnn = Make(kCnn, Images(50));
  const auto lstm = Make(kLstm, Sentences(50));
  const Vector<float> w = Start(kCnn, SchemaOf({8, 8})), v = Start(kLstm, SchemaOf({6}));
  Vector<float> first(w.size()), again(w.size()), other(v.size());
  const double loss = cnn->Evaluate(w, {}, first);
  lstm->Evaluate(v, {}, other);
  std::thread([&] { EXPECT_EQ(cnn->Evaluate(w, {}, again), loss); }).join();
  EXPECT_EQ(again, first);
  EXPECT_EQ(cnn->Evaluate(w, {}, again), loss);
  EXPECT_EQ(again, first);
}

TEST(NetworkObjectiveTest, DropoutIsRepeatableAndOffOverAllRows) {
  const std::string dropping =
      "cnn { classes: 5 filters: 2 filters: 3 hidden: 6 dropout_after_pooling: .25 "
      "dropout_after_dense: .5 }";
  const auto with = Make(dropping.c_str(), Images(40)), without = Make(kCnn, Images(40));
  const Vector<float> w = Start(kCnn, SchemaOf({8, 8}));
  Vector<float> gradient(w.size());
  const std::vector<uint32_t> rows = RowsFrom(0, 20), others = RowsFrom(20, 40);
  const double loss = with->Evaluate(w, rows, gradient);
  EXPECT_NE(loss, without->Evaluate(w, rows, gradient));
  with->Evaluate(w, others, gradient);
  EXPECT_EQ(with->Evaluate(w, rows, gradient), loss);
  EXPECT_EQ(with->Evaluate(w, {}, gradient), without->Evaluate(w, {}, gradient));
  EXPECT_EQ(with->Test(w).loss_sum, without->Test(w).loss_sum);
}

TEST(NetworkObjectiveTest, PenaltyIsInLossAndGradient) {
  const auto plain = Make("mlp { hidden: 4 classes: 5 }", Images(12));
  const auto penalised = Make("mlp { hidden: 4 classes: 5 l2: 0.5 }", Images(12));
  const Vector<float> w = Start("mlp { hidden: 4 classes: 5 }", SchemaOf({8, 8}));
  Vector<float> a(w.size()), b(w.size());
  const double loss = plain->Evaluate(w, {}, a);
  EXPECT_NEAR(penalised->Evaluate(w, {}, b), loss + 0.25 * w.cast<double>().squaredNorm(), 1e-6);
  EXPECT_LT((b - a - 0.5f * w).norm(), 1e-6f * w.norm());
}

TEST(NetworkObjectiveTest, GradientDescentLearnsAFewImages) {
  const auto objective = Make(kCnn, Images(12));
  const v1::DataSchema schema = SchemaOf({8, 8});
  auto w = std::get<Vector<float>>(InitialModel(*LayoutOf(ModelOf(kCnn), schema), 1));
  Vector<float> gradient(w.size());
  const double before = objective->Evaluate(w, {}, gradient);
  for (int step = 0; step < 400; ++step) {
    objective->Evaluate(w, {}, gradient);
    w -= 0.2f * gradient;
  }
  EXPECT_LT(objective->Evaluate(w, {}, gradient), 0.3 * before);
  EXPECT_GE(objective->Test(w).correct, 10u);
}

TEST(NetworkObjectiveTest, NamesFileAndRowOfABadLabelOrToken) {
  Dataset data = Images(4);
  data.train.y = Array<int64_t>({4}, {0, 4, 5, 1});
  const std::string label = MakeNetworkObjective(ModelOf(kCnn), data).status().ToString();
  EXPECT_THAT(label, HasSubstr("train_y.npy: row 2 (counted from 0) holds 5"));
  EXPECT_THAT(label, HasSubstr("model.cnn.classes"));
  data.train.y = Array<float>({4}, {0, 1, 2, 3});
  EXPECT_THAT(MakeNetworkObjective(ModelOf(kCnn), data).status().ToString(),
              HasSubstr("train_y.npy: floating-point numbers"));

  Dataset text = Sentences(7);
  text.test->x = Array<int32_t>({1, 6}, {1, 2, 3, 4, -5, 6});
  text.test->y = Array<int32_t>({1, 6}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(MakeNetworkObjective(ModelOf(kLstm), text).status().ToString(),
              HasSubstr("test_x.npy: row 0 (counted from 0) holds -5"));
  text.train.y = Array<int32_t>({7}, {1, 2, 3, 4, 5, 6, 1});
  EXPECT_THAT(MakeNetworkObjective(ModelOf(kLstm), text).status().ToString(),
              HasSubstr("train_y.npy: not of the shape of train_x.npy"));
}

TEST(NetworkLayoutTest, RefusesWhatDoesNotFitByName) {
  const auto refusal = [](const char* model, const v1::DataSchema& schema) {
    return LayoutOf(ModelOf(model), schema).status().ToString();
  };
  EXPECT_THAT(refusal("mlp { classes: 1 }", SchemaOf({4})), HasSubstr("model.mlp.classes is 1"));
  EXPECT_THAT(refusal("mlp { classes: 3 hidden: 0 }", SchemaOf({4})),
              HasSubstr("model.mlp.hidden is 0"));
  EXPECT_THAT(refusal("cnn { classes: 3 }", SchemaOf({783})), HasSubstr("{783}"));
  EXPECT_THAT(refusal("cnn { classes: 3 }", SchemaOf({28, 5})), HasSubstr("{28, 5}"));
  EXPECT_THAT(refusal("cnn { classes: 3 filters: 8 }", SchemaOf({28, 28})),
              HasSubstr("model.cnn.filters has 1 values"));
  EXPECT_THAT(refusal("cnn { classes: 3 dropout_after_dense: 1 }", SchemaOf({28, 28})),
              HasSubstr("model.cnn.dropout_after_dense is 1"));
  EXPECT_THAT(refusal("lstm { vocabulary: 9 embedding: 2 }", SchemaOf({5})),
              HasSubstr("model.lstm.hidden is empty"));
  EXPECT_THAT(refusal(kLstm, SchemaOf({5, 5})), HasSubstr("{5, 5}"));
  EXPECT_THAT(refusal("lstm { vocabulary: 16000000 embedding: 30000 hidden: 1 }", SchemaOf({5})),
              HasSubstr("parameters: at most"));
  v1::DataSchema numbers = SchemaOf({4});
  numbers.set_labels(false);
  EXPECT_THAT(refusal("mlp { classes: 3 }", numbers), HasSubstr("not integers"));
}

}  // namespace
}  // namespace leeway::networks
