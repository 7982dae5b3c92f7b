#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/import/byte_stream.h"
#include "client/import/client_name.h"
#include "client/import/importers.h"
#include "client/import/progress.h"
#include "common/status.h"
#include "simdjson.h"

namespace leeway {
namespace {

namespace ondemand = simdjson::ondemand;

absl::Status JsonError(simdjson::error_code code) {
  if (code == simdjson::INCORRECT_TYPE) {
    return absl::InvalidArgumentError(
        "holds another kind of value than LEAF files do: {\"users\": [names], \"num_samples\": "
        "[counts], \"user_data\": {name: {\"x\": [arrays of numbers], \"y\": [numbers]}}}");
  }
  return absl::DataLossError(absl::StrCat("bad JSON: ", simdjson::error_message(code),
                                          "; is the file complete? NaN and Infinity are not JSON"));
}

#define LEEWAY_JSON_ASSIGN(lhs, expr)                                             \
  do {                                                                            \
    if (auto leeway_code_ = (expr).get(lhs); leeway_code_ != simdjson::SUCCESS) { \
      return JsonError(leeway_code_);                                             \
    }                                                                             \
  } while (false)

// What one user of one file holds. The buffers are used again for the next user.
struct UserData {
  std::vector<float> floats;
  std::vector<int32_t> tokens;
  std::vector<int64_t> labels;
  uint64_t samples = 0;
  uint64_t width = 0;  // values of one sample
};

// One LEAF file being read: what `users` and `num_samples` announce, and who has
// been found in `user_data`.
class LeafFile {
 public:
  LeafFile(const LeafOptions& options, Part part, FederationWriter* writer)
      : options_(options), part_(part), writer_(writer) {}

  absl::Status Read(const std::string& path, ondemand::parser* parser) {
    LEEWAY_ASSIGN_OR_RETURN(std::string text, ReadAll(path, simdjson::SIMDJSON_PADDING));
    if (absl::StartsWith(text, "\xef\xbb\xbf")) text.replace(0, 3, 3, ' ');  // byte-order mark
    ondemand::document document;
    if (auto code = parser->iterate(text.data(), text.size(), text.capacity()).get(document)) {
      return Annotate(JsonError(code), path);
    }
    LEEWAY_RETURN_IF_ERROR(Annotate(ReadDocument(&document), path));
    return Annotate(CheckUsers(), path);
  }

 private:
  absl::Status ReadDocument(ondemand::document* document) {
    ondemand::object fields;
    LEEWAY_JSON_ASSIGN(fields, document->get_object());
    for (auto field : fields) {
      std::string_view key;
      LEEWAY_JSON_ASSIGN(key, field.unescaped_key());
      ondemand::value value;
      LEEWAY_JSON_ASSIGN(value, field.value());
      if (key == "users") {
        LEEWAY_RETURN_IF_ERROR(ReadUsers(value));
      } else if (key == "num_samples") {
        LEEWAY_RETURN_IF_ERROR(ReadCounts(value));
      } else if (key == "user_data") {
        LEEWAY_RETURN_IF_ERROR(ReadUserData(value));
      }
    }
    if (document->current_location().error() == simdjson::SUCCESS) {
      return absl::DataLossError("bad JSON: something follows the closing brace");
    }
    return absl::OkStatus();
  }

  absl::Status ReadUsers(ondemand::value value) {
    ondemand::array users;
    LEEWAY_JSON_ASSIGN(users, value.get_array());
    for (auto user : users) {
      std::string_view name;
      LEEWAY_JSON_ASSIGN(name, user.get_string());
      users_.emplace_back(name);
    }
    return absl::OkStatus();
  }

  absl::Status ReadCounts(ondemand::value value) {
    ondemand::array counts;
    LEEWAY_JSON_ASSIGN(counts, value.get_array());
    for (auto count : counts) {
      uint64_t samples = 0;
      LEEWAY_JSON_ASSIGN(samples, count.get_uint64());
      counts_.push_back(samples);
    }
    return absl::OkStatus();
  }

  absl::Status ReadUserData(ondemand::value value) {
    ondemand::object users;
    LEEWAY_JSON_ASSIGN(users, value.get_object());
    for (auto user : users) {
      std::string_view key;
      LEEWAY_JSON_ASSIGN(key, user.unescaped_key());
      const std::string name(key);
      ondemand::object fields;
      LEEWAY_JSON_ASSIGN(fields, user.value().get_object());
      LEEWAY_RETURN_IF_ERROR(Annotate(ReadUser(fields), absl::StrCat("client ", Printable(name))));
      found_[name] += data_.samples;
      const Rows x = options_.vocabulary > 0 ? RowsOf(data_.tokens, data_.samples, {data_.width})
                                             : RowsOf(data_.floats, data_.samples, {data_.width});
      LEEWAY_RETURN_IF_ERROR(
          writer_->Append(name, part_, x, RowsOf(data_.labels, data_.samples, {})));
    }
    return absl::OkStatus();
  }

  absl::Status ReadUser(ondemand::object fields) {
    data_.floats.clear();
    data_.tokens.clear();
    data_.labels.clear();
    data_.samples = data_.width = 0;
    bool has_x = false;
    bool has_y = false;
    for (auto field : fields) {
      std::string_view key;
      LEEWAY_JSON_ASSIGN(key, field.unescaped_key());
      if (key == "x") {
        has_x = true;
        LEEWAY_RETURN_IF_ERROR(ReadX(field.value()));
      } else if (key == "y") {
        has_y = true;
        LEEWAY_RETURN_IF_ERROR(ReadY(field.value()));
      }
    }
    if (!has_x || !has_y) {
      return absl::InvalidArgumentError(absl::StrCat("has no ", has_x ? "\"y\"" : "\"x\""));
    }
    if (data_.samples != data_.labels.size()) {
      return absl::InvalidArgumentError(absl::StrCat("x has ", data_.samples, " samples, y has ",
                                                     data_.labels.size(), " labels"));
    }
    return absl::OkStatus();
  }

  size_t values() const {
    return options_.vocabulary > 0 ? data_.tokens.size() : data_.floats.size();
  }

  absl::Status ReadX(simdjson::simdjson_result<ondemand::value> value) {
    ondemand::array samples;
    LEEWAY_JSON_ASSIGN(samples, value.get_array());
    for (auto sample : samples) {
      const size_t before = values();
      ondemand::value row;
      LEEWAY_JSON_ASSIGN(row, sample);
      LEEWAY_RETURN_IF_ERROR(
          Annotate(ReadValues(row), absl::StrCat("x of sample ", data_.samples)));
      const uint64_t width = values() - before;
      if (data_.samples == 0) data_.width = width;
      if (width != data_.width || width == 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "x of sample ", data_.samples, " has ", width, " values, sample 0 has ", data_.width));
      }
      ++data_.samples;
    }
    return absl::OkStatus();
  }

  // A number, or numbers in nested arrays, which are flattened.
  absl::Status ReadValues(ondemand::value value) {
    ondemand::json_type type;
    LEEWAY_JSON_ASSIGN(type, value.type());
    if (type == ondemand::json_type::array) {
      ondemand::array items;
      LEEWAY_JSON_ASSIGN(items, value.get_array());
      for (auto item : items) {
        ondemand::value inner;
        LEEWAY_JSON_ASSIGN(inner, item);
        LEEWAY_RETURN_IF_ERROR(ReadValues(inner));
      }
      return absl::OkStatus();
    }
    if (type == ondemand::json_type::string) {
      return absl::UnimplementedError(
          "is text. LEAF files of numbers can be imported; for text use `leeway data import tff` "
          "(HDF5 with strings) or `leeway data import text` (TSV by user)");
    }
    return options_.vocabulary > 0 ? ReadToken(value) : ReadFloat(value);
  }

  absl::Status ReadToken(ondemand::value value) {
    int64_t token = 0;
    LEEWAY_JSON_ASSIGN(token, value.get_int64());
    if (token < 0 || static_cast<uint64_t>(token) >= options_.vocabulary) {
      return absl::OutOfRangeError(absl::StrCat(
          "token id ", token, " is out of range: --tokens says ", options_.vocabulary));
    }
    data_.tokens.push_back(static_cast<int32_t>(token));
    return absl::OkStatus();
  }

  absl::Status ReadFloat(ondemand::value value) {
    double number = 0;
    LEEWAY_JSON_ASSIGN(number, value.get_double());
    if (!(std::abs(number) <= static_cast<double>(std::numeric_limits<float>::max()))) {
      return absl::OutOfRangeError(absl::StrCat(number, " does not fit in float32"));
    }
    data_.floats.push_back(static_cast<float>(number));
    return absl::OkStatus();
  }

  absl::Status ReadY(simdjson::simdjson_result<ondemand::value> value) {
    ondemand::array labels;
    LEEWAY_JSON_ASSIGN(labels, value.get_array());
    for (auto item : labels) {
      double label = 0;
      if (auto code = item.get_double().get(label)) {
        return Annotate(JsonError(code),
                        absl::StrCat("y of sample ", data_.labels.size(), " is not a number"));
      }
      if (label != std::floor(label) || std::abs(label) > 1e15) {
        return absl::InvalidArgumentError(absl::StrCat("y of sample ", data_.labels.size(), " is ",
                                                       label, ", expected a whole number"));
      }
      data_.labels.push_back(static_cast<int64_t>(label));
    }
    return absl::OkStatus();
  }

  absl::Status CheckUsers() const {
    if (!counts_.empty() && counts_.size() != users_.size()) {
      return absl::InvalidArgumentError(absl::StrCat("has ", users_.size(), " users, but ",
                                                     counts_.size(), " entries of num_samples"));
    }
    for (size_t i = 0; i < users_.size(); ++i) {
      const std::string client = absl::StrCat("client ", Printable(users_[i]));
      auto found = found_.find(users_[i]);
      if (found == found_.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat(client, ": is listed in \"users\", but is not in \"user_data\""));
      }
      if (!counts_.empty() && counts_[i] != found->second) {
        return absl::InvalidArgumentError(absl::StrCat(client, ": num_samples says ", counts_[i],
                                                       ", but user_data has ", found->second));
      }
    }
    if (users_.size() < found_.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"user_data\" has ", found_.size(), " clients, but \"users\" lists ", users_.size()));
    }
    return absl::OkStatus();
  }

  const LeafOptions& options_;
  const Part part_;
  FederationWriter* const writer_;
  std::vector<std::string> users_;
  std::vector<uint64_t> counts_;
  std::map<std::string, uint64_t> found_;  // samples by user
  UserData data_;
};

absl::Status ReadPart(const LeafOptions& options, Part part, const std::string& directory,
                      FederationWriter* writer) {
  LEEWAY_ASSIGN_OR_RETURN(std::vector<std::string> files,
                          ListFiles(directory, {".json", ".json.gz"}));
  if (files.empty()) {
    return absl::NotFoundError(absl::StrCat(directory, ": holds no *.json or *.json.gz file"));
  }
  Progress progress(absl::StrCat("reading ", PartName(part)), "files", files.size());
  ondemand::parser parser;
  for (const std::string& file : files) {
    LeafFile leaf(options, part, writer);
    LEEWAY_RETURN_IF_ERROR(leaf.Read(file, &parser));
    progress.Step();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Json> ImportLeaf(const LeafOptions& options) {
  namespace fs = std::filesystem;
  const bool split = fs::is_directory(options.source + "/train");
  const std::string train = split ? options.source + "/train" : options.source;
  std::string test = options.test;
  if (test.empty() && split && fs::is_directory(options.source + "/test")) {
    test = options.source + "/test";
  }
  LEEWAY_ASSIGN_OR_RETURN(std::unique_ptr<FederationWriter> writer,
                          FederationWriter::Create(options.writer));
  LEEWAY_RETURN_IF_ERROR(ReadPart(options, Part::kTrain, train, writer.get()));
  if (!test.empty()) LEEWAY_RETURN_IF_ERROR(ReadPart(options, Part::kTest, test, writer.get()));
  Json description = {{"kind", "leaf"}, {"source", options.source}};
  description["options"] = {
      {"test", test}, {"min_samples", options.writer.min_samples}, {"tokens", options.vocabulary}};
  return writer->Finish(std::move(description));
}

}  // namespace leeway
