#include "common/model_file.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"

static_assert(std::endian::native == std::endian::little,
              "values are used as they lie in the file");

namespace leeway {
namespace {

using Json = nlohmann::json;

constexpr size_t kPrefix = 8;  // the header's length, little-endian
// The format allows 100 MB; none of ours comes near 1 MiB, and JSON of hostile
// bytes may take a hundred times their size in memory.
constexpr uint64_t kMaxHeader = uint64_t{1} << 20;

constexpr uint64_t kMaxValues = uint64_t{1} << 30;  // of one tensor

uint64_t CountOf(const std::vector<TensorSpec>& tensors) {
  uint64_t count = 0;
  for (const TensorSpec& tensor : tensors) count += tensor.size();
  return count;
}

std::string FormatHeader(const std::vector<TensorSpec>& tensors, absl::string_view dtype,
                         uint64_t item_size) {
  std::string header = "{";
  uint64_t begin = 0;
  for (const TensorSpec& tensor : tensors) {
    const uint64_t end = begin + tensor.size() * item_size;
    absl::StrAppend(&header, header.size() == 1 ? "" : ",",
                    Json(tensor.name).dump(-1, ' ', false, Json::error_handler_t::replace),
                    ":{\"dtype\":\"", dtype, "\",\"shape\":[", absl::StrJoin(tensor.shape, ","),
                    "],\"data_offsets\":[", begin, ",", end, "]}");
    begin = end;
  }
  header += "}";
  // Aligns the values, as the format recommends.
  header.append((8 - header.size() % 8) % 8, ' ');
  return header;
}

absl::Status Refuse(absl::string_view name, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("model file ", name, ": ", what));
}

absl::StatusOr<absl::string_view> HeaderText(absl::string_view bytes, absl::string_view name) {
  uint64_t length = 0;
  if (bytes.size() < kPrefix) {
    return Refuse(name, absl::StrCat("truncated after ", bytes.size(), " bytes"));
  }
  std::memcpy(&length, bytes.data(), kPrefix);
  if (length > kMaxHeader) {
    return Refuse(name, absl::StrCat("its header claims ", length, " bytes, at most ", kMaxHeader,
                                     " are read: is it a safetensors file?"));
  }
  if (length > bytes.size() - kPrefix) {
    return Refuse(name, absl::StrCat("truncated: its header has ", length, " bytes, the file only ",
                                     bytes.size() - kPrefix));
  }
  return bytes.substr(kPrefix, length);
}

absl::StatusOr<Json> ParseHeader(absl::string_view text, absl::string_view name) {
  // The library keeps the last of two equal keys; two readers could then see
  // two different models in one file.
  bool duplicate = false;
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      duplicate |= !keys.back().insert(value.get<std::string>()).second;
    }
    return true;
  };
  Json header = Json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  if (header.is_discarded()) return Refuse(name, "its header is not JSON");
  if (!header.is_object()) return Refuse(name, "its header is not a JSON object");
  if (duplicate) return Refuse(name, "a key occurs twice in its header");
  return header;
}

// True if `json` is an array of exactly these natural numbers.
bool Equals(const Json& json, const std::vector<uint64_t>& expected) {
  if (!json.is_array() || json.size() != expected.size()) return false;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!json[i].is_number_unsigned() || json[i].get<uint64_t>() != expected[i]) return false;
  }
  return true;
}

absl::Status CheckTensor(const Json& header, const TensorSpec& tensor, absl::string_view dtype,
                         uint64_t begin, uint64_t end, absl::string_view name) {
  const auto refuse = [&](absl::string_view what) {
    return Refuse(name, absl::StrCat("tensor \"", tensor.name, "\" ", what));
  };
  const auto found = header.find(tensor.name);
  if (found == header.end()) return refuse("is missing");
  const auto field = [&](const char* key) {
    return found->is_object() && found->contains(key) ? (*found)[key] : Json();
  };
  if (field("dtype") != Json(std::string(dtype))) {
    return refuse("is not all F32 or all F64 like the others");
  }
  if (!Equals(field("shape"), tensor.shape)) {
    return refuse(absl::StrCat("does not have shape [", absl::StrJoin(tensor.shape, ","), "]"));
  }
  if (!Equals(field("data_offsets"), {begin, end})) {
    return refuse(absl::StrCat("is not at data_offsets [", begin, ",", end, "]"));
  }
  return absl::OkStatus();
}

// The header against the tensors that must be there; returns the bytes per value.
absl::StatusOr<uint64_t> CheckHeader(const Json& header, const std::vector<TensorSpec>& tensors,
                                     absl::string_view name) {
  const bool metadata = header.contains("__metadata__");  // the format allows it
  if (header.size() - (metadata ? 1 : 0) != tensors.size()) {
    return Refuse(name, absl::StrCat("has ", header.size() - (metadata ? 1 : 0),
                                     " tensors, the model ", tensors.size()));
  }
  // One tensor decides the type, CheckTensor holds all to it.
  const std::string first = tensors.empty() ? "" : tensors[0].name;
  const bool single = header.contains(first) && header[first].is_object() &&
                      header[first].contains("dtype") && header[first]["dtype"] == "F32";
  const uint64_t item_size = single ? 4 : 8;
  uint64_t begin = 0;
  for (const TensorSpec& tensor : tensors) {
    const uint64_t end = begin + tensor.size() * item_size;
    LEEWAY_RETURN_IF_ERROR(CheckTensor(header, tensor, single ? "F32" : "F64", begin, end, name));
    begin = end;
  }
  return item_size;
}

absl::StatusOr<uint64_t> ItemSize(absl::string_view text, const std::vector<TensorSpec>& tensors,
                                  absl::string_view name) {
  // As EncodeModel writes it: nothing to find out, and a small round costs less.
  if (text == FormatHeader(tensors, "F64", 8)) return 8;
  if (text == FormatHeader(tensors, "F32", 4)) return 4;
  LEEWAY_ASSIGN_OR_RETURN(const Json header, ParseHeader(text, name));
  return CheckHeader(header, tensors, name);
}

struct ListedTensor {
  TensorSpec spec;
  std::string dtype;
  uint64_t begin = 0;
};

// One entry of a header whose tensors are not known beforehand. Where its values lie
// is checked later, with all the others.
absl::StatusOr<ListedTensor> ListedAs(const std::string& key, const Json& entry,
                                      absl::string_view name) {
  const auto refuse = [&](absl::string_view what) {
    return Refuse(name, absl::StrCat("tensor \"", key, "\" ", what));
  };
  const auto natural = [](const Json& json) { return json.is_number_unsigned(); };
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
      !entry.contains("shape") || !entry["shape"].is_array() ||
      !std::all_of(entry["shape"].begin(), entry["shape"].end(), natural) ||
      !entry.contains("data_offsets") || !entry["data_offsets"].is_array() ||
      entry["data_offsets"].size() != 2 || !natural(entry["data_offsets"][0])) {
    return refuse("has no dtype, shape and data_offsets");
  }
  ListedTensor tensor{{key, entry["shape"].get<std::vector<uint64_t>>()},
                      entry["dtype"].get<std::string>(),
                      entry["data_offsets"][0].get<uint64_t>()};
  if (tensor.dtype != "F32" && tensor.dtype != "F64") {
    return refuse(absl::StrCat("is ", tensor.dtype,
                               "; Leeway sums F32 and F64: convert it, such as by ",
                               "model.float() in PyTorch"));
  }
  uint64_t values = 1;
  for (const uint64_t side : tensor.spec.shape) {
    if (side == 0 || side > kMaxValues / values) {
      return refuse(absl::StrCat("has shape [", absl::StrJoin(tensor.spec.shape, ","),
                                 "]: expected 1 to ", kMaxValues, " values"));
    }
    values *= side;
  }
  return tensor;
}

template <typename T>
Vector<T> Values(absl::string_view data) {
  Vector<T> values(static_cast<Eigen::Index>(data.size() / sizeof(T)));
  if (!data.empty()) std::memcpy(values.data(), data.data(), data.size());
  return values;
}

}  // namespace

std::string EncodeModel(const std::vector<TensorSpec>& tensors, const Parameters& parameters) {
  return std::visit(
      [&](const auto& values) {
        using T = typename std::decay_t<decltype(values)>::Scalar;
        if (static_cast<uint64_t>(values.size()) != CountOf(tensors)) {
          std::fprintf(stderr, "leeway: bug: %lld parameters for a layout of %llu\n",
                       static_cast<long long>(values.size()),
                       static_cast<unsigned long long>(CountOf(tensors)));
          std::abort();
        }
        return absl::StrCat(EncodeModelHeader(tensors, sizeof(T) == 8),
                            absl::string_view(reinterpret_cast<const char*>(values.data()),
                                              static_cast<size_t>(values.size()) * sizeof(T)));
      },
      parameters);
}

std::string EncodeModelHeader(const std::vector<TensorSpec>& tensors, bool float64) {
  const std::string header = FormatHeader(tensors, float64 ? "F64" : "F32", float64 ? 8 : 4);
  const uint64_t length = header.size();
  return absl::StrCat(absl::string_view(reinterpret_cast<const char*>(&length), kPrefix), header);
}

absl::StatusOr<ModelFileContents> ListTensors(absl::string_view bytes, absl::string_view name) {
  LEEWAY_ASSIGN_OR_RETURN(const absl::string_view text, HeaderText(bytes, name));
  LEEWAY_ASSIGN_OR_RETURN(const Json header, ParseHeader(text, name));
  std::map<uint64_t, TensorSpec> by_offset;
  std::string dtype;
  for (const auto& [key, entry] : header.items()) {
    if (key == "__metadata__") continue;
    LEEWAY_ASSIGN_OR_RETURN(const ListedTensor tensor, ListedAs(key, entry, name));
    if (dtype.empty()) dtype = tensor.dtype;
    if (tensor.dtype != dtype) {
      return Refuse(name, absl::StrCat("tensor \"", key, "\" is ", tensor.dtype, ", others are ",
                                       dtype, "; convert all to one of F32 and F64"));
    }
    if (!by_offset.emplace(tensor.begin, tensor.spec).second) {
      return Refuse(name, absl::StrCat("tensor \"", key, "\" lies where another one does"));
    }
  }
  ModelFileContents contents;
  if (by_offset.empty()) return Refuse(name, "has no tensors");
  contents.float64 = dtype == "F64";
  for (auto& [begin, tensor] : by_offset) contents.tensors.push_back(std::move(tensor));
  LEEWAY_RETURN_IF_ERROR(DecodeModel(bytes, contents.tensors, name).status());
  return contents;
}

absl::Status CheckModelHeader(absl::string_view bytes, const std::vector<TensorSpec>& tensors,
                              bool float64, absl::string_view name) {
  LEEWAY_ASSIGN_OR_RETURN(const absl::string_view text, HeaderText(bytes, name));
  LEEWAY_ASSIGN_OR_RETURN(const uint64_t item_size, ItemSize(text, tensors, name));
  if (item_size == (float64 ? 8u : 4u)) return absl::OkStatus();
  return Refuse(name, absl::StrCat("its values are ", float64 ? "F32" : "F64", ", expected ",
                                   float64 ? "F64" : "F32"));
}

absl::StatusOr<Parameters> DecodeModel(absl::string_view bytes,
                                       const std::vector<TensorSpec>& tensors,
                                       absl::string_view name) {
  LEEWAY_ASSIGN_OR_RETURN(const absl::string_view text, HeaderText(bytes, name));
  LEEWAY_ASSIGN_OR_RETURN(const uint64_t item_size, ItemSize(text, tensors, name));
  const absl::string_view data = bytes.substr(kPrefix + text.size());
  const uint64_t expected = CountOf(tensors) * item_size;
  if (data.size() != expected) {
    return Refuse(name, absl::StrCat(data.size() < expected ? "truncated: " : "trailing bytes: ",
                                     data.size(), " bytes of values, expected ", expected));
  }
  if (item_size == 4) return Parameters(Values<float>(data));
  return Parameters(Values<double>(data));
}

}  // namespace leeway
