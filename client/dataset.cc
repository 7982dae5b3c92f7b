#include "client/dataset.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/digest.h"
#include "common/status.h"

namespace leeway {
namespace {

constexpr absl::string_view kFiles =
    "a client's directory has train_x.npy and train_y.npy, and optionally test_x.npy and "
    "test_y.npy";

bool Exists(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0;
}

bool IsInteger(NpyType type) { return type != NpyType::kFloat32 && type != NpyType::kFloat64; }

std::string ShapeText(const std::vector<uint64_t>& shape) {
  return absl::StrCat("(", absl::StrJoin(shape, ", "), shape.size() == 1 ? ",)" : ")");
}

// Index of the first value that is NaN or infinite, or the array's size.
template <typename T>
size_t FirstBad(const NpyArray& array) {
  const size_t size = array.size();
  for (size_t i = 0; i < size; ++i) {
    T value;
    std::memcpy(&value, array.data() + i * sizeof(T), sizeof(T));
    if (!std::isfinite(value)) return i;
  }
  return size;
}

absl::Status CheckFinite(const NpyArray& array, const std::string& path) {
  if (IsInteger(array.type())) return absl::OkStatus();
  const size_t size = array.size();
  const size_t bad =
      array.type() == NpyType::kFloat32 ? FirstBad<float>(array) : FirstBad<double>(array);
  if (bad == size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": row ", bad / (size / array.shape()[0]),
                   " (counted from 0) holds NaN or an infinity, expected finite numbers; drop or "
                   "fill such rows, e.g. numpy.nan_to_num"));
}

absl::Status CheckShapes(const DataPart& part, const std::string& x_path,
                         const std::string& y_path) {
  const std::vector<uint64_t>& x = part.x.shape();
  const std::vector<uint64_t>& y = part.y.shape();
  if (x.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(x_path,
                     ": a single number, expected an array with one row per example; use "
                     "array.reshape(n, -1)"));
  }
  for (size_t axis = 1; axis < x.size(); ++axis) {
    if (x[axis] > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(x_path, ": shape ", ShapeText(x),
                                                   ", expected at least one feature per example"));
  }
  // Sequences: one target per input token.
  const bool sequence = y.size() == 2 && x.size() == 2 && y[1] == x[1] && IsInteger(part.y.type());
  if (y.size() != 1 && !(y.size() == 2 && y[1] == 1) && !sequence) {
    return absl::InvalidArgumentError(
        absl::StrCat(y_path, ": shape ", ShapeText(y),
                     ", expected one value per example, (n,), or for sequences integers of the "
                     "shape of x; use array.reshape(-1)"));
  }
  if (x[0] != y[0]) {
    return absl::InvalidArgumentError(
        absl::StrCat(y_path, ": ", y[0], " rows, expected ", x[0], " as in ", x_path,
                     "; x and y need one row per example, in the same order"));
  }
  return absl::OkStatus();
}

absl::StatusOr<DataPart> LoadPart(const std::string& directory, absl::string_view part) {
  const std::string x_path = absl::StrCat(directory, "/", part, "_x.npy");
  const std::string y_path = absl::StrCat(directory, "/", part, "_y.npy");
  for (const std::string& path : {x_path, y_path}) {
    if (!Exists(path)) {
      return absl::NotFoundError(absl::StrCat(path, ": no such file; ", kFiles));
    }
  }
  DataPart data;
  LEEWAY_ASSIGN_OR_RETURN(data.x, NpyArray::Map(x_path));
  LEEWAY_ASSIGN_OR_RETURN(data.y, NpyArray::Map(y_path));
  LEEWAY_RETURN_IF_ERROR(CheckShapes(data, x_path, y_path));
  LEEWAY_RETURN_IF_ERROR(CheckFinite(data.x, x_path));
  LEEWAY_RETURN_IF_ERROR(CheckFinite(data.y, y_path));
  return data;
}

// Test examples must look like the training examples.
absl::Status CheckAlike(const DataPart& train, const DataPart& test, const std::string& directory) {
  const auto features = [](const NpyArray& x) {
    return std::vector<uint64_t>(x.shape().begin() + 1, x.shape().end());
  };
  if (features(train.x) == features(test.x)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      directory, "/test_x.npy: shape ", ShapeText(test.x.shape()), ", expected the features of ",
      "train_x.npy, shape ", ShapeText(train.x.shape()), "; prepare both parts alike"));
}

size_t BytesPerValue(NpyType type) {
  switch (type) {
    case NpyType::kUint8:
      return 1;
    case NpyType::kFloat32:
    case NpyType::kInt32:
      return 4;
    default:
      return 8;
  }
}

// Of type, shape and values of all arrays: what the client computes depends on nothing else.
uint64_t DigestOf(const DataPart& train, const DataPart* test) {
  std::string digests;
  const auto add = [&digests](const NpyArray& array) {
    const absl::string_view bytes(reinterpret_cast<const char*>(array.data()),
                                  array.size() * BytesPerValue(array.type()));
    absl::StrAppend(&digests, static_cast<int>(array.type()), ShapeText(array.shape()), ":",
                    Xxh3(bytes), ";");
  };
  add(train.x);
  add(train.y);
  if (test != nullptr) {
    add(test->x);
    add(test->y);
  }
  return std::max<uint64_t>(1, Xxh3(digests));  // 0 would say that it is not known
}

// The directory's path without trailing slashes, if it is one.
absl::StatusOr<std::string> Root(const std::string& directory) {
  absl::string_view trimmed = directory;
  while (trimmed.size() > 1 && absl::ConsumeSuffix(&trimmed, "/")) {
  }
  const std::string root(trimmed);
  struct stat info;
  if (::stat(root.c_str(), &info) != 0) {
    return absl::NotFoundError(absl::StrCat(directory, ": no such directory; ", kFiles));
  }
  if (!S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(directory, ": not a directory; ", kFiles));
  }
  return root;
}

std::string NameOf(const std::string& root) { return root.substr(root.rfind('/') + 1); }

}  // namespace

absl::StatusOr<Dataset> Dataset::Load(const std::string& directory) {
  LEEWAY_ASSIGN_OR_RETURN(const std::string root, Root(directory));
  Dataset data;
  data.id = NameOf(root);
  LEEWAY_ASSIGN_OR_RETURN(data.train, LoadPart(root, "train"));
  if (data.train.examples() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        root, "/train_x.npy: no examples, expected at least one; leave out clients without data"));
  }
  if (Exists(absl::StrCat(root, "/test_x.npy")) || Exists(absl::StrCat(root, "/test_y.npy"))) {
    LEEWAY_ASSIGN_OR_RETURN(data.test, LoadPart(root, "test"));
    LEEWAY_RETURN_IF_ERROR(CheckAlike(data.train, *data.test, root));
  }
  return data;
}

absl::StatusOr<Dataset> Dataset::LoadEvaluator(const std::string& directory) {
  LEEWAY_ASSIGN_OR_RETURN(const std::string root, Root(directory));
  Dataset data;
  data.id = NameOf(root);
  data.evaluator = true;
  LEEWAY_ASSIGN_OR_RETURN(data.train, LoadPart(root, "test"));
  if (data.train.examples() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        root, "/test_x.npy: no examples, expected at least one in a central test set"));
  }
  data.test = data.train;
  return data;
}

Dataset Dataset::Make(const SyntheticClients& clients, uint32_t client) {
  Dataset data;
  data.id = clients.Name(client);
  data.make_again = [&clients, client] {
    const SyntheticProblem& problem = clients.problem();
    const SyntheticClient made = clients.Make(client);
    return DataPart{NpyArray::Of(made.x, {problem.samples, problem.dimension}),
                    NpyArray::Of(made.y, {problem.samples})};
  };
  data.train = data.make_again();
  return data;
}

v1::DataSchema Dataset::Schema() const {
  v1::DataSchema schema;
  const std::vector<uint64_t>& shape = train.x.shape();
  for (size_t axis = 1; axis < shape.size(); ++axis) schema.add_feature_shape(shape[axis]);
  schema.set_labels(IsInteger(train.y.type()));
  return schema;
}

v1::HostedClient Dataset::Hosted() const {
  v1::HostedClient hosted;
  hosted.set_id(id);
  hosted.set_evaluator(evaluator);
  hosted.set_examples(evaluator ? 0 : train.examples());
  hosted.set_test_examples(test ? test->examples() : 0);
  hosted.set_digest(DigestOf(train, test ? &*test : nullptr));
  return hosted;
}

}  // namespace leeway
