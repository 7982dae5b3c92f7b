#include "client/networks/network_objective.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/networks/architectures.h"
#include "client/npy_values.h"
#include "common/rng.h"
#include "common/status.h"

namespace leeway {
namespace {

using networks::Extent;
using networks::Index;
using networks::Network;
using networks::Outcome;
using networks::Write;
using Rows = absl::Span<const uint32_t>;

v1::DataSchema SchemaOf(const Dataset& data) {
  v1::DataSchema schema;
  const std::vector<uint64_t>& shape = data.train.x.shape();
  for (size_t axis = 1; axis < shape.size(); ++axis) schema.add_feature_shape(shape[axis]);
  schema.set_labels(true);
  return schema;
}

// Every value must be an integer from 0 to limit-1.
absl::Status CheckIntegers(const NpyArray& array, uint64_t limit, absl::string_view file,
                           absl::string_view field) {
  if (array.type() == NpyType::kFloat32 || array.type() == NpyType::kFloat64) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": floating-point numbers, expected integers; save them as int32"));
  }
  const size_t size = array.size();
  const size_t per_row = array.shape()[0] ? size / array.shape()[0] : 1;
  return Typed(array, [&](const auto* from) -> absl::Status {
    for (size_t i = 0; i < size; ++i) {
      const auto value = static_cast<int64_t>(Read(from + i));
      if (value >= 0 && static_cast<uint64_t>(value) < limit) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          file, ": row ", i / per_row, " (counted from 0) holds ", value,
          ", expected an integer from 0 to ", limit - 1, "; check the data and ", field));
    }
    return absl::OkStatus();
  });
}

absl::Status CheckPart(const v1::Model& model, const DataPart& part, const std::string& name) {
  if (!model.has_lstm()) {
    const auto classes = model.has_mlp() ? model.mlp().classes() : model.cnn().classes();
    if (part.y.size() != part.examples()) {
      return absl::InvalidArgumentError(absl::StrCat(name, "_y.npy: ", part.y.size(),
                                                     " labels for ", part.examples(),
                                                     " examples, expected one each"));
    }
    return CheckIntegers(part.y, classes, name + "_y.npy",
                         model.has_mlp() ? "model.mlp.classes" : "model.cnn.classes");
  }
  if (part.y.shape() != part.x.shape()) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, "_y.npy: not of the shape of ", name,
        "_x.npy, expected one target for each token: y[i, t] is the token after x[i, t]"));
  }
  const uint64_t limit = model.lstm().vocabulary();
  LEEWAY_RETURN_IF_ERROR(CheckIntegers(part.x, limit, name + "_x.npy", "model.lstm.vocabulary"));
  return CheckIntegers(part.y, limit, name + "_y.npy", "model.lstm.vocabulary");
}

// The calling thread's network of this model, made when it differs from the last.
template <typename T>
Network<T>& ThreadNetwork(const v1::Model& model, const v1::DataSchema& schema,
                          const std::string& key) {
  thread_local std::string last;
  thread_local std::unique_ptr<Network<T>> network;
  if (network == nullptr || last != key) {
    network = nullptr;  // frees the old scratch space first
    network = networks::MakeNetwork<T>(model, schema);
    last = key;
  }
  return *network;
}

uint64_t Hash(uint64_t hash, const void* bytes, size_t size) {
  // FNV-1a over 32-bit words.
  for (size_t i = 0; i + 4 <= size; i += 4) {
    uint32_t word;
    std::memcpy(&word, static_cast<const char*>(bytes) + i, 4);
    hash = (hash ^ word) * 0x100000001b3u;
  }
  return hash;
}

class NetworkObjective final : public Objective<float> {
 public:
  NetworkObjective(const v1::Model& model, const Dataset& data)
      : model_(model),
        schema_(SchemaOf(data)),
        key_(absl::StrCat(model.SerializeAsString(), "/", schema_.SerializeAsString())),
        data_(data),
        client_(ClientKey(data.id)),
        row_size_(static_cast<Index>(data.train.x.size() / data.train.examples())),
        l2_(model.has_mlp() ? model.mlp().l2() : 0),
        drops_(model.has_cnn() &&
               (model.cnn().dropout_after_pooling() > 0 || model.cnn().dropout_after_dense() > 0)) {
  }

  uint64_t examples() const override { return data_.train.examples(); }

  double Evaluate(ConstVectorRef<float> w, Rows rows, VectorRef<float> gradient) override {
    Network<float>& network = ThreadNetwork<float>(model_, schema_, key_);
    const double count = static_cast<double>(Count(rows));
    const Index size = static_cast<Index>(rows.empty() ? examples() : rows.size());
    if (count == 0) gradient.setZero();
    Rng dropout = DropoutStream(w, rows);
    Write write = Write::kSet;
    double loss = 0;
    for (Index first = 0; first < size && count > 0; first += network.largest().examples) {
      const Index end = std::min(size, first + network.largest().examples);
      const Extent extent = Fill(data_.train, rows, first, end, network);
      const Outcome outcome =
          network.Train(w.data(), extent, static_cast<float>(1 / count),
                        drops_ && !rows.empty() ? &dropout : nullptr, gradient.data(), write);
      loss += outcome.loss_sum / count;
      write = Write::kAdd;
    }
    if (l2_ != 0) gradient += static_cast<float>(l2_) * w;
    return loss + Penalty(w);
  }

  // Without dropout, like every full gradient.
  void FullGradientInDouble(const Vector<double>& w, Vector<double>& gradient) override {
    Network<double>& network = ThreadNetwork<double>(model_, schema_, key_);
    const double count = static_cast<double>(Count({}));
    const Index size = static_cast<Index>(examples());
    gradient.setZero(w.size());
    for (Index first = 0; first < size && count > 0; first += network.largest().examples) {
      const Index end = std::min(size, first + network.largest().examples);
      network.Train(w.data(), Fill(data_.train, {}, first, end, network), 1 / count, nullptr,
                    gradient.data(), first == 0 ? Write::kSet : Write::kAdd);
    }
    if (l2_ != 0) gradient += l2_ * w;
  }

  // Gradients in double precision allow a step so small that hardly any unit of a layer with a
  // kink gets to its other side.
  double DifferenceStep() const override { return 1e-8; }

  // Forward only: a third of the work of a gradient.
  double Loss(ConstVectorRef<float> w, VectorRef<float>) override {
    const TestResult result = TestOn(data_.train, w, {});
    const double mean =
        result.examples > 0 ? result.loss_sum / static_cast<double>(result.examples) : 0;
    return mean + Penalty(w);
  }

  TestResult Test(ConstVectorRef<float> w) override {
    if (!data_.test) return {};
    TestResult result;
    result.labels.resize(Classes());
    return TestOn(*data_.test, w, std::move(result));
  }

  TargetSummary Targets() override {
    const bool text = model_.has_lstm();
    TargetSummary summary;
    summary.shares.resize(Classes());
    Typed(data_.train.y, [&](const auto* y) {
      for (size_t i = 0; i < data_.train.y.size(); ++i) {
        summary.shares[static_cast<size_t>(Read(y + i))] += 1;
      }
      return 0;
    });
    if (text) summary.shares[kPadToken] = 0;
    const double count = static_cast<double>(std::max<uint64_t>(1, Count({})));
    for (double& share : summary.shares) share /= count;
    return summary;
  }

 private:
  size_t Classes() const {
    return model_.has_lstm()  ? model_.lstm().vocabulary()
           : model_.has_mlp() ? model_.mlp().classes()
                              : model_.cnn().classes();
  }

  // Labels and scores are counted where `result` has room for labels.
  TestResult TestOn(const DataPart& part, const ConstVectorRef<float>& w, TestResult result) {
    Network<float>& network = ThreadNetwork<float>(model_, schema_, key_);
    const auto count = [&](const networks::Block<float>& logits) {
      if (result.labels.empty()) return;
      for (Index i = 0; i < logits.rows(); ++i) {
        const int32_t label = network.targets()[i];
        if (model_.has_lstm() && label == kPadToken) continue;
        ++result.labels[static_cast<size_t>(label)];
        if (result.labels.size() != 2 || model_.has_lstm()) continue;
        result.scores[label].push_back(static_cast<double>(logits(i, 1)) -
                                       static_cast<double>(logits(i, 0)));
      }
    };
    const Index size = static_cast<Index>(part.examples());
    for (Index first = 0; first < size; first += network.largest().examples) {
      const Index end = std::min(size, first + network.largest().examples);
      const Outcome outcome = network.Test(w.data(), Fill(part, {}, first, end, network), count);
      result.examples += outcome.rows;
      result.loss_sum += outcome.loss_sum;
      result.correct += outcome.correct;
    }
    return result;
  }

  // Examples, or for text tokens, that count in the loss of `rows`.
  uint64_t Count(Rows rows) const {
    if (!model_.has_lstm()) return rows.empty() ? examples() : rows.size();
    return Typed(data_.train.y, [&](const auto* y) {
      uint64_t count = 0;
      const uint64_t size = rows.empty() ? examples() : rows.size();
      for (uint64_t i = 0; i < size; ++i) {
        const Index row = static_cast<Index>(rows.empty() ? i : rows[i]);
        for (Index t = 0; t < row_size_; ++t) {
          count += Read(y + row * row_size_ + t) != kPadToken ? 1 : 0;
        }
      }
      return count;
    });
  }

  // Fills the network's batch with rows first .. end-1 of `rows` (of all, if
  // empty). Sequences end at the last step with a target in any of them.
  template <typename T>
  Extent Fill(const DataPart& part, Rows rows, Index first, Index end, Network<T>& network) {
    const Index examples = end - first;
    for (Index i = 0; i < examples; ++i) {
      const auto at = static_cast<size_t>(first + i);
      const Index row = rows.empty() ? first + i : static_cast<Index>(rows[at]);
      if (network.takes_tokens()) {
        CopyValues(part.x, row * row_size_, row_size_, network.tokens() + i, examples);
        CopyValues(part.y, row * row_size_, row_size_, network.targets() + i, examples);
      } else {
        CopyValues(part.x, row * row_size_, row_size_, network.batch() + i * row_size_, 1);
        CopyValues(part.y, row, 1, network.targets() + i, 1);
      }
    }
    if (!network.takes_tokens()) return {examples, 1};
    const int32_t* targets = network.targets();
    Index last = row_size_ * examples - 1;
    while (last > 0 && targets[last] == kPadToken) --last;
    return {examples, last / examples + 1};
  }

  // The last parameters are those of the output layer, which every step changes.
  Rng DropoutStream(const ConstVectorRef<float>& w, Rows rows) const {
    if (!drops_) return Rng(0, 0, 0, Purpose::kDropout);
    const auto tail = static_cast<size_t>(std::min<Index>(w.size(), 4096));
    const uint64_t model = Hash(1, w.data() + static_cast<size_t>(w.size()) - tail, 4 * tail);
    return Rng(model, Hash(2, rows.data(), 4 * rows.size()), client_, Purpose::kDropout);
  }

  double Penalty(const ConstVectorRef<float>& w) const {
    if (l2_ == 0) return 0;
    double square = 0;  // summed one by one: no dependence on how w is aligned
    for (Index i = 0; i < w.size(); ++i) square += static_cast<double>(w[i]) * w[i];
    return 0.5 * l2_ * square;
  }

  const v1::Model model_;
  const v1::DataSchema schema_;
  const std::string key_;  // names the network
  const Dataset data_;     // shares the mapped files
  const uint64_t client_;
  const Index row_size_;
  const double l2_;
  const bool drops_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Objective<float>>> MakeNetworkObjective(const v1::Model& model,
                                                                       const Dataset& data) {
  LEEWAY_RETURN_IF_ERROR(CheckPart(model, data.train, data.train_name()));
  if (data.test) LEEWAY_RETURN_IF_ERROR(CheckPart(model, *data.test, "test"));
  return std::make_unique<NetworkObjective>(model, data);
}

}  // namespace leeway
