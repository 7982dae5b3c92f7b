#include "common/model_file.h"

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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
        const std::string header = FormatHeader(tensors, sizeof(T) == 4 ? "F32" : "F64", sizeof(T));
        const uint64_t length = header.size();
        return absl::StrCat(absl::string_view(reinterpret_cast<const char*>(&length), kPrefix),
                            header,
                            absl::string_view(reinterpret_cast<const char*>(values.data()),
                                              static_cast<size_t>(values.size()) * sizeof(T)));
      },
      parameters);
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
