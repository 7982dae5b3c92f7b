// Writes what torch_check.py compares: for a model, its weights, a batch, the loss
// and the gradient, as .npy files. Usage: torch_dump DIRECTORY
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/networks/network_objective.h"
#include "common/model_layout.h"
#include "common/npy.h"
#include "common/rng.h"
#include "tests/client/networks/check.h"

namespace leeway::networks {
namespace {

template <typename T>
void Save(const std::string& path, const std::vector<uint64_t>& shape,
          const std::vector<T>& values) {
  const absl::Status status = WriteNpy<T>(path, shape, values);
  if (status.ok()) return;
  std::cerr << status << "\n";
  std::exit(1);
}

// Integers from 1 below `limit`; with `padding`, zeros at the end of each row.
std::vector<int32_t> Tokens(uint64_t rows, uint64_t steps, uint64_t limit, bool padding,
                            uint64_t seed) {
  Rng rng(seed, 0, 0, Purpose::kTest);
  std::vector<int32_t> tokens(rows * steps);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = 1 + static_cast<int32_t>(rng.Below(limit - 1));
    if (padding && i % steps > steps / 2 + i / steps % 5) tokens[i] = 0;
  }
  return tokens;
}

void Dump(const std::string& directory, const std::string& name, const char* text,
          const std::vector<uint64_t>& shape, uint64_t limit) {
  const v1::Model model = ModelOf(text);
  const std::string stem = absl::StrCat(directory, "/", name, "_");
  const uint64_t rows = shape[0];
  if (model.has_lstm()) {
    Save(stem + "x.npy", shape, Tokens(rows, shape[1], limit, false, 1));
    Save(stem + "y.npy", shape, Tokens(rows, shape[1], limit, true, 2));
  } else {
    const Vector<float> x = Random<float>(static_cast<Eigen::Index>(rows * shape[1] * shape[2]), 1);
    Save(stem + "x.npy", shape, std::vector<float>(x.begin(), x.end()));
    Save(stem + "y.npy", {rows}, Tokens(rows, 1, limit, false, 2));
  }
  Dataset data;
  data.id = name;
  data.train = {NpyArray::Map(stem + "x.npy").value(), NpyArray::Map(stem + "y.npy").value()};

  v1::DataSchema schema;
  for (size_t axis = 1; axis < shape.size(); ++axis) schema.add_feature_shape(shape[axis]);
  schema.set_labels(true);
  const ModelLayout layout = LayoutOf(model, schema).value();
  auto w = std::get<Vector<float>>(InitialModel(layout, 7));
  // Biases start at zero, where an error in them could hide.
  w += Random<float>(w.size(), 8, 0.02);
  Vector<float> gradient(w.size());
  const double loss = MakeNetworkObjective(model, data).value()->Evaluate(w, {}, gradient);

  const auto size = static_cast<uint64_t>(w.size());
  Save<double>(stem + "loss.npy", {1}, {loss});
  Save(stem + "w.npy", {size}, std::vector<float>(w.begin(), w.end()));
  Save(stem + "gradient.npy", {size}, std::vector<float>(gradient.begin(), gradient.end()));
}

}  // namespace
}  // namespace leeway::networks

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: torch_dump DIRECTORY\n";
    return 1;
  }
  using leeway::networks::Dump;
  Dump(argv[1], "cnn", "cnn { classes: 62 }", {20, 28, 28}, 62);
  Dump(argv[1], "next_character", "lstm { vocabulary: 90 embedding: 8 hidden: 256 hidden: 256 }",
       {16, 80}, 90);
  Dump(argv[1], "next_word", "lstm { vocabulary: 10004 embedding: 96 hidden: 670 projection: 96 }",
       {16, 20}, 10004);
  return 0;
}
