#include "common/fit_model.h"

#include <map>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"

namespace leeway {
namespace {

absl::Status Refuse(absl::string_view name, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", what));
}

std::string ShapeText(const std::vector<uint64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ","), "]");
}

// Where in the file each of the model's tensors begins, in values.
absl::StatusOr<std::vector<uint64_t>> PlacesOf(const std::vector<TensorSpec>& tensors,
                                               const std::vector<TensorSpec>& found,
                                               absl::string_view name) {
  std::map<std::string, std::pair<uint64_t, const TensorSpec*>> by_name;
  uint64_t begin = 0;
  for (const TensorSpec& tensor : found) {
    by_name[tensor.name] = {begin, &tensor};
    begin += tensor.size();
  }
  std::vector<uint64_t> places;
  for (const TensorSpec& tensor : tensors) {
    const auto place = by_name.find(tensor.name);
    if (place == by_name.end()) {
      return Refuse(name,
                    absl::StrCat("tensor \"", tensor.name, "\" of shape ", ShapeText(tensor.shape),
                                 ", which the model has, is missing"));
    }
    if (place->second.second->shape != tensor.shape) {
      return Refuse(name, absl::StrCat("tensor \"", tensor.name, "\" has shape ",
                                       ShapeText(place->second.second->shape), ", the model's has ",
                                       ShapeText(tensor.shape)));
    }
    places.push_back(place->second.first);
    by_name.erase(place);
  }
  if (by_name.empty()) return places;
  return Refuse(name, absl::StrCat("tensor \"", by_name.begin()->first, "\" of shape ",
                                   ShapeText(by_name.begin()->second.second->shape),
                                   " is none of the model's"));
}

template <typename T>
Vector<T> Arrange(const Vector<T>& values, const std::vector<TensorSpec>& tensors,
                  const std::vector<uint64_t>& places) {
  Vector<T> out(values.size());
  Eigen::Index at = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto size = static_cast<Eigen::Index>(tensors[i].size());
    out.segment(at, size) = values.segment(static_cast<Eigen::Index>(places[i]), size);
    at += size;
  }
  return out;
}

}  // namespace

absl::StatusOr<Parameters> FitModel(absl::string_view bytes, const std::vector<TensorSpec>& tensors,
                                    bool float64, absl::string_view name) {
  LEEWAY_ASSIGN_OR_RETURN(const ModelFileContents found, ListTensors(bytes, name));
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<uint64_t> places,
                          PlacesOf(tensors, found.tensors, name));
  if (found.float64 != float64) {
    return Refuse(name, absl::StrCat("its values are ", float64 ? "F32" : "F64", ", the model's ",
                                     float64 ? "F64" : "F32"));
  }
  LEEWAY_ASSIGN_OR_RETURN(const Parameters values, DecodeModel(bytes, found.tensors, name));
  return std::visit([&](const auto& flat) { return Parameters(Arrange(flat, tensors, places)); },
                    values);
}

}  // namespace leeway
