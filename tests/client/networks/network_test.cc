#include "client/networks/network.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "client/networks/architectures.h"
#include "client/networks/network_objective.h"
#include "common/model_layout.h"
#include "tests/client/networks/check.h"
#include "tests/client/synthetic.h"

// Counts every allocation of this thread: new and Eigen both end in malloc.
// Sanitizers have a malloc of their own.
namespace {
thread_local size_t allocations = 0;
}  // namespace
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LEEWAY_COUNTS_ALLOCATIONS
extern "C" void* __libc_malloc(size_t size);
extern "C" void* malloc(size_t size) {
  ++allocations;
  return __libc_malloc(size);
}
#endif

namespace leeway::networks {
namespace {

struct Case {
  const char* model;
  v1::DataSchema schema;
  int32_t classes;
};

std::vector<Case> SmallModels() {
  return {{"mlp { hidden: 7 hidden: 5 classes: 3 }", SchemaOf({2, 3}), 3},
          {"mlp { classes: 4 }", SchemaOf({9}), 4},
          {"cnn { classes: 5 filters: 2 filters: 3 hidden: 6 }", SchemaOf({8, 10}), 5},
          {"cnn { classes: 3 filters: 3 filters: 2 hidden: 4 }", SchemaOf({7, 6, 2}), 3},
          {"lstm { vocabulary: 6 embedding: 3 hidden: 4 hidden: 5 }", SchemaOf({4}), 6},
          {"lstm { vocabulary: 9 embedding: 2 hidden: 5 projection: 3 }", SchemaOf({3}), 9}};
}

// A batch of n examples; for sequences, some targets are padding.
template <typename T>
void Fill(Network<T>& network, Extent extent, int32_t classes, uint64_t seed) {
  Rng rng(seed, 1, 0, Purpose::kTest);
  const auto label = [&] {
    return static_cast<int32_t>(rng.Below(static_cast<uint64_t>(classes)));
  };
  for (Index i = 0; i < extent.rows(); ++i) {
    if (network.takes_tokens()) network.tokens()[i] = label();
    network.targets()[i] = label();
  }
  if (network.takes_tokens()) {
    network.targets()[1] = kPadToken;
    network.targets()[2] = 1;
    return;
  }
  const Vector<T> x = Random<T>(extent.rows() * network.inputs(), seed);
  std::copy_n(x.data(), x.size(), network.batch());
}

TEST(NetworkTest, GradientsMatchFiniteDifferences) {
  for (const Case& c : SmallModels()) {
    SCOPED_TRACE(c.model);
    const auto network = MakeNetwork<double>(ModelOf(c.model), c.schema, 4);
    const Extent extent{3, network->largest().steps};
    const Vector<double> w = Random<double>(network->parameters(), 3, 0.5);
    const auto loss = [&](const Vector<double>& at) {
      Fill(*network, extent, c.classes, 5);
      return network->Test(at.data(), extent).loss_sum;
    };
    Vector<double> gradient = Vector<double>::Ones(w.size());
    Fill(*network, extent, c.classes, 5);
    const Outcome outcome =
        network->Train(w.data(), extent, 1.0, nullptr, gradient.data(), Write::kSet);
    EXPECT_NEAR(outcome.loss_sum, loss(w), 1e-12);
    ExpectSlopes(loss, w, gradient);
  }
}

TEST(NetworkTest, FloatAndDoubleAgree) {
  for (const Case& c : SmallModels()) {
    SCOPED_TRACE(c.model);
    const auto exact = MakeNetwork<double>(ModelOf(c.model), c.schema, 4);
    const auto network = MakeNetwork<float>(ModelOf(c.model), c.schema, 4);
    const Extent extent = network->largest();
    const Vector<float> w = Random<float>(network->parameters(), 3, 0.5);
    const Vector<double> exact_w = w.cast<double>();
    Vector<float> gradient(w.size());
    Vector<double> exact_gradient(w.size());
    Fill(*network, extent, c.classes, 5);
    Fill(*exact, extent, c.classes, 5);
    network->Train(w.data(), extent, 1.0f, nullptr, gradient.data(), Write::kSet);
    exact->Train(exact_w.data(), extent, 1.0, nullptr, exact_gradient.data(), Write::kSet);
    EXPECT_LT((gradient.cast<double>() - exact_gradient).norm(), 2e-6 * exact_gradient.norm());
  }
}

TEST(NetworkTest, HasTheParametersOfItsLayout) {
  std::vector<Case> cases = SmallModels();
  cases.push_back({"cnn { classes: 62 }", SchemaOf({784}), 62});
  for (const Case& c : cases) {
    SCOPED_TRACE(c.model);
    const auto layout = LayoutOf(ModelOf(c.model), c.schema);
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_FALSE(layout->float64);
    const auto network = MakeNetwork<float>(ModelOf(c.model), c.schema, 1);
    EXPECT_EQ(static_cast<uint64_t>(network->parameters()), layout->size());
  }
}

uint64_t Parameters(const char* model, const v1::DataSchema& schema) {
  const auto layout = LayoutOf(ModelOf(model), schema);
  EXPECT_TRUE(layout.ok()) << layout.status();
  return layout.ok() ? layout->size() : 0;
}

TEST(NetworkTest, HasAsManyParametersAsTheLiteratureSays) {
  EXPECT_EQ(Parameters("cnn { classes: 62 }", SchemaOf({28, 28})), 1'206'590u);
  EXPECT_EQ(Parameters("cnn { classes: 62 }", SchemaOf({28, 28, 1})), 1'206'590u);
  EXPECT_EQ(Parameters("lstm { vocabulary: 10004 embedding: 96 hidden: 670 projection: 96 }",
                       SchemaOf({20})),
            4'050'748u);
  EXPECT_EQ(Parameters("mlp { hidden: 200 hidden: 200 classes: 10 }", SchemaOf({28, 28})),
            199'210u);
}

TEST(NetworkTest, TrainingAllocatesNothing) {
  for (const char* model :
       {"mlp { hidden: 300 classes: 62 }",
        "cnn { classes: 62 dropout_after_pooling: .25 dropout_after_dense: .5 }",
        "lstm { vocabulary: 1000 embedding: 8 hidden: 256 hidden: 256 }"}) {
    SCOPED_TRACE(model);
    const v1::Model parsed = ModelOf(model);
    const auto network =
        MakeNetwork<float>(parsed, parsed.has_lstm() ? SchemaOf({20}) : SchemaOf({28, 28}), 20);
    const Vector<float> w = Random<float>(network->parameters(), 3, 0.05);
    Vector<float> gradient(w.size());
    const Extent extent = network->largest();
    Fill(*network, extent, 62, 5);
    Rng rng(1, 2, 3, Purpose::kDropout);
    const size_t before = allocations;
    network->Train(w.data(), extent, 1.0f, &rng, gradient.data(), Write::kSet);
    network->Test(w.data(), extent);
    EXPECT_EQ(allocations, before);
    EXPECT_TRUE(gradient.allFinite());
  }
}

TEST(NetworkTest, AllocationsAreCounted) {
#ifdef LEEWAY_COUNTS_ALLOCATIONS
  const size_t before = allocations;
  const Vector<float> v(5);
  const auto p = std::make_unique<int>(3);
  EXPECT_EQ(allocations, before + 2);
#endif
}

TEST(NetworkTest, StepsOnAClientsDataAllocateNothing) {
  Dataset data;
  data.id = "client-7";
  data.train = {testing_data::Array<float>({40, 28, 28}, std::vector<float>(40 * 784, 0.5f)),
                testing_data::Array<int32_t>({40}, std::vector<int32_t>(40, 3))};
  data.test = data.train;
  const v1::Model model = ModelOf("cnn { classes: 62 dropout_after_dense: .5 }");
  const auto objective = MakeNetworkObjective(model, data).value();
  const Vector<float> w = Random<float>(1'206'590, 3, 0.05);
  Vector<float> gradient(w.size());
  const std::vector<uint32_t> rows = {5, 39, 0, 7};
  objective->Evaluate(w, {}, gradient);
  const size_t before = allocations;
  objective->Evaluate(w, rows, gradient);
  objective->Evaluate(w, {}, gradient);
  EXPECT_EQ(allocations, before);
  objective->Test(w);  // whose result counts labels
  EXPECT_LE(allocations, before + 3);
}

TEST(NetworkTest, PaddedTargetsAndWhatFollowsThemHaveNoEffect) {
  const v1::Model model = ModelOf("lstm { vocabulary: 8 embedding: 3 hidden: 5 }");
  const auto network = MakeNetwork<double>(model, SchemaOf({6}), 2);
  const Vector<double> w = Random<double>(network->parameters(), 3);
  const auto evaluate = [&](Extent extent, int32_t last_token, Vector<double>& gradient) {
    for (Index t = 0; t < extent.steps; ++t) {
      for (Index i = 0; i < 2; ++i) {
        const bool padded = t >= 4;
        network->tokens()[t * 2 + i] = padded ? last_token : static_cast<int32_t>(1 + t + i);
        network->targets()[t * 2 + i] = padded ? kPadToken : static_cast<int32_t>(2 + t + i);
      }
    }
    gradient.resize(w.size());
    return network->Train(w.data(), extent, 1.0, nullptr, gradient.data(), Write::kSet);
  };
  Vector<double> shorter, padded, other;
  const Outcome outcome = evaluate({2, 4}, 0, shorter);
  EXPECT_EQ(outcome.rows, 8u);
  EXPECT_EQ(evaluate({2, 6}, 0, padded).loss_sum, outcome.loss_sum);
  EXPECT_EQ(evaluate({2, 6}, 7, other).loss_sum, outcome.loss_sum);
  EXPECT_LT((padded - shorter).norm(), 1e-12);
  EXPECT_LT((other - shorter).norm(), 1e-12);
}

TEST(NetworkTest, DropoutFollowsItsStream) {
  const v1::Model model = ModelOf(
      "cnn { classes: 5 filters: 2 filters: 3 hidden: 6 dropout_after_pooling: .25 "
      "dropout_after_dense: .5 }");
  const auto network = MakeNetwork<float>(model, SchemaOf({8, 8}), 4);
  const Vector<float> w = Random<float>(network->parameters(), 3);
  const auto loss = [&](Rng* rng) {
    Vector<float> gradient(w.size());
    Fill(*network, {4}, 5, 5);
    return network->Train(w.data(), {4}, 1.0f, rng, gradient.data(), Write::kSet).loss_sum;
  };
  Rng one(1, 0, 0, Purpose::kDropout), again = one, two(2, 0, 0, Purpose::kDropout);
  const double dropped = loss(&one);
  EXPECT_EQ(loss(&again), dropped);
  EXPECT_NE(loss(&two), dropped);
  EXPECT_NE(loss(nullptr), dropped);
}

}  // namespace
}  // namespace leeway::networks
