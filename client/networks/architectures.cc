#include "client/networks/architectures.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "client/networks/convolution.h"

namespace leeway::networks {
namespace {

constexpr Index kScratchValues = 6'000'000;
// Labels are never negative, so every image counts.
constexpr int32_t kNone = -1;

// The largest power of two that keeps to the scratch space.
Index Examples(Index asked, Index values_per_example) {
  if (asked > 0) return asked;
  const auto fitting =
      static_cast<uint64_t>(std::max<Index>(1, kScratchValues / values_per_example));
  return std::clamp<Index>(static_cast<Index>(std::bit_floor(fitting)), 16, 256);
}

template <typename T>
std::unique_ptr<Network<T>> MakeMlp(const v1::Mlp& model, const v1::DataSchema& schema,
                                    Index asked) {
  Index size = 1;
  for (uint64_t extent : schema.feature_shape()) size *= static_cast<Index>(extent);
  Index widest = size;
  Index total = size;
  for (uint32_t hidden : model.hidden()) {
    widest = std::max<Index>(widest, hidden);
    total += hidden;
  }
  typename Network<T>::Layers layers;
  for (uint32_t hidden : model.hidden()) {
    layers.push_back(std::make_unique<Dense<T>>(size, hidden));
    layers.push_back(std::make_unique<Relu<T>>(hidden));
    size = hidden;
  }
  layers.push_back(std::make_unique<Dense<T>>(size, model.classes()));
  return std::make_unique<Network<T>>(nullptr, std::move(layers),
                                      Extent{Examples(asked, total + 2 * widest)}, kNone);
}

template <typename T>
std::unique_ptr<Network<T>> MakeCnn(const v1::Cnn& model, const v1::DataSchema& schema,
                                    Index asked) {
  const CnnSizes sizes = CnnSizesOf(model, schema).value();
  const auto index = [](uint64_t n) { return static_cast<Index>(n); };
  auto conv1 = std::make_unique<Conv3x3<T>>(
      ImageSize{index(sizes.height), index(sizes.width), index(sizes.channels)},
      index(sizes.filters1));
  auto conv2 = std::make_unique<Conv3x3<T>>(conv1->out(), index(sizes.filters2));
  auto pool = std::make_unique<MaxPool2<T>>(conv2->out());
  const Index pooled = pool->outputs();
  const Index hidden = index(sizes.hidden);
  const Extent largest{
      Examples(asked, conv1->inputs() + conv1->outputs() + 3 * conv2->outputs() + pooled)};

  typename Network<T>::Layers layers;
  const Index first = conv1->outputs();
  layers.push_back(std::move(conv1));
  layers.push_back(std::make_unique<Relu<T>>(first));
  layers.push_back(std::move(conv2));
  // The largest of four and the larger of zero commute: rectifying after pooling
  // gives the same for a quarter of the work.
  layers.push_back(std::move(pool));
  layers.push_back(std::make_unique<Relu<T>>(pooled));
  layers.push_back(std::make_unique<Dropout<T>>(pooled, model.dropout_after_pooling(), largest));
  layers.push_back(std::make_unique<Dense<T>>(pooled, hidden));
  layers.push_back(std::make_unique<Relu<T>>(hidden));
  layers.push_back(std::make_unique<Dropout<T>>(hidden, model.dropout_after_dense(), largest));
  layers.push_back(std::make_unique<Dense<T>>(hidden, model.classes()));
  return std::make_unique<Network<T>>(nullptr, std::move(layers), largest, kNone);
}

template <typename T>
std::unique_ptr<Network<T>> MakeLstm(const v1::Lstm& model, const v1::DataSchema& schema,
                                     Index asked) {
  const auto steps = static_cast<Index>(schema.feature_shape(0));
  Index widest = std::max(model.embedding(), model.projection());
  Index total = widest + model.vocabulary();
  for (uint32_t hidden : model.hidden()) {
    widest = std::max<Index>(widest, hidden);
    total += 7 * static_cast<Index>(hidden);
  }
  const Extent largest{Examples(asked, steps * (total + 2 * widest)), steps};

  typename Network<T>::Layers layers;
  Index size = model.embedding();
  for (uint32_t hidden : model.hidden()) {
    layers.push_back(std::make_unique<LstmLayer<T>>(size, hidden, largest));
    size = hidden;
  }
  if (model.projection() > 0) {
    layers.push_back(std::make_unique<Dense<T>>(size, model.projection()));
    size = model.projection();
  }
  layers.push_back(std::make_unique<Dense<T>>(size, model.vocabulary()));
  return std::make_unique<Network<T>>(
      std::make_unique<Embedding<T>>(model.vocabulary(), model.embedding()), std::move(layers),
      largest, kPadToken);
}

}  // namespace

template <typename T>
std::unique_ptr<Network<T>> MakeNetwork(const v1::Model& model, const v1::DataSchema& schema,
                                        Index examples) {
  if (model.has_mlp()) return MakeMlp<T>(model.mlp(), schema, examples);
  if (model.has_cnn()) return MakeCnn<T>(model.cnn(), schema, examples);
  return MakeLstm<T>(model.lstm(), schema, examples);
}

template std::unique_ptr<Network<float>> MakeNetwork(const v1::Model&, const v1::DataSchema&,
                                                     Index);
template std::unique_ptr<Network<double>> MakeNetwork(const v1::Model&, const v1::DataSchema&,
                                                      Index);

}  // namespace leeway::networks
