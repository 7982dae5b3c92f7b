#include "client/import/federation.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/import/byte_stream.h"
#include "client/import/client_name.h"
#include "common/status.h"
#include "common/synthetic.h"

namespace leeway {
namespace {

namespace fs = std::filesystem;

// Labels with more values than this, and fewer samples for each than that, are most
// often amounts, years or numbers of something.
constexpr uint64_t kManyClasses = 100;
constexpr uint64_t kFewSamplesPerClass = 10;

// Nearest rank: the smallest size that `percent` of the clients do not exceed.
uint64_t Percentile(const std::vector<uint64_t>& sorted, uint64_t percent) {
  const size_t rank = (sorted.size() * percent + 99) / 100;
  return sorted[rank == 0 ? 0 : rank - 1];
}

Json Percentiles(std::vector<uint64_t> sizes) {
  if (sizes.empty()) return nullptr;
  std::sort(sizes.begin(), sizes.end());
  return {{"min", sizes.front()},
          {"p10", Percentile(sizes, 10)},
          {"p50", Percentile(sizes, 50)},
          {"p90", Percentile(sizes, 90)},
          {"max", sizes.back()}};
}

Json Histogram(const std::map<int64_t, uint64_t>& labels) {
  Json json = Json::object();
  for (const auto& [label, count] : labels) json[absl::StrCat(label)] = count;
  return json;
}

Json RowTypeToJson(const RowType& type) {
  return {{"type", NpyTypeName(type.type)}, {"shape", type.shape}};
}

void CountLabels(const MappedPart& part, PartSummary* summary) {
  const Rows rows = RowsOf(part.y);
  if (!rows.type.integer()) return;
  const std::vector<int64_t> values = IntegersOf(rows);
  if (rows.type.shape.empty()) {
    for (int64_t label : values) ++summary->labels[label];
  } else {
    summary->targets +=
        values.size() - static_cast<uint64_t>(std::count(values.begin(), values.end(), 0));
  }
}

absl::Status CheckSame(const std::string& what, const RowType& expected, const RowType& found,
                       const std::string& first) {
  if (expected == found) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " has rows of ", found.ToString(), ", but ",
                                                 first, " has rows of ", expected.ToString()));
}

absl::Status AddPart(const std::string& root, ClientEntry* client, Part which, bool count_labels,
                     FederationSummary* summary, bool* first) {
  LEEWAY_ASSIGN_OR_RETURN(std::optional<MappedPart> part, MapPart(root, *client, which));
  if (!part.has_value()) return absl::OkStatus();
  if (std::exchange(*first, false)) {
    summary->x = RowTypeOf(part->x);
    summary->y = RowTypeOf(part->y);
  }
  const std::string where =
      absl::StrCat(root, ": client ", client->directory, ": ", PartName(which));
  const std::string other =
      summary->clients.empty() ? "its training part" : summary->clients.front().directory;
  LEEWAY_RETURN_IF_ERROR(CheckSame(where + "_x", summary->x, RowTypeOf(part->x), other));
  LEEWAY_RETURN_IF_ERROR(CheckSame(where + "_y", summary->y, RowTypeOf(part->y), other));
  PartSummary& sums = which == Part::kTrain ? summary->train : summary->test;
  sums.sizes.push_back(part->samples());
  (which == Part::kTrain ? client->train : client->test) = part->samples();
  if (count_labels) CountLabels(*part, &sums);
  return absl::OkStatus();
}

}  // namespace

uint64_t PartSummary::samples() const {
  uint64_t sum = 0;
  for (uint64_t size : sizes) sum += size;
  return sum;
}

Rows RowsOf(const NpyArray& array) {
  Rows rows{RowTypeOf(array), array.shape().empty() ? 0 : array.shape()[0], {}};
  rows.bytes = absl::MakeConstSpan(array.data(), array.size() * NpyTypeSize(array.type()));
  return rows;
}

absl::StatusOr<std::optional<Json>> ReadDescription(const std::string& root) {
  const std::string path = root + "/federation.json";
  if (!fs::exists(path)) return std::optional<Json>();
  LEEWAY_ASSIGN_OR_RETURN(std::string text, ReadAll(path));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is not a JSON object; remove it to have it recomputed"));
  }
  return std::optional<Json>(std::move(json));
}

absl::StatusOr<std::vector<ClientEntry>> ListClients(const std::string& root) {
  std::error_code error;
  fs::directory_iterator entries(root, error);
  if (error) return absl::NotFoundError(absl::StrCat(root, ": ", error.message()));
  std::vector<ClientEntry> clients;
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename().string();
    if (!fs::exists(entry.path() / "train_x.npy", error)) continue;
    clients.push_back({name, name, 0, 0});
  }
  if (clients.empty() && fs::exists(fs::path(root) / kSyntheticFile, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(root, ": its clients are made on the fly, by ", kSyntheticFile,
                     "; there are no files to read. Leave out --on-the-fly to have them written"));
  }
  if (clients.empty()) {
    return absl::NotFoundError(absl::StrCat(
        root, ": holds no client: expected directories with train_x.npy and train_y.npy"));
  }
  std::sort(clients.begin(), clients.end(),
            [](const ClientEntry& a, const ClientEntry& b) { return a.directory < b.directory; });
  LEEWAY_ASSIGN_OR_RETURN(std::optional<Json> description, ReadDescription(root));
  if (!description.has_value() || !description->contains("client_list")) return clients;
  std::map<std::string, std::string> names;
  for (const Json& item : (*description)["client_list"]) {
    if (item.is_object()) names[item.value("directory", "")] = item.value("name", "");
  }
  for (ClientEntry& client : clients) {
    if (auto found = names.find(client.directory); found != names.end()) {
      client.name = found->second;
    }
  }
  return clients;
}

absl::StatusOr<std::optional<MappedPart>> MapPart(const std::string& root,
                                                  const ClientEntry& client, Part part) {
  const std::string stem = absl::StrCat(root, "/", client.directory, "/", PartName(part));
  if (part == Part::kTest && !fs::exists(stem + "_x.npy")) return std::optional<MappedPart>();
  LEEWAY_ASSIGN_OR_RETURN(NpyArray x, NpyArray::Map(stem + "_x.npy"));
  LEEWAY_ASSIGN_OR_RETURN(NpyArray y, NpyArray::Map(stem + "_y.npy"));
  if (x.shape().empty() || y.shape().empty() || x.shape()[0] != y.shape()[0]) {
    return absl::InvalidArgumentError(
        absl::StrCat(stem, "_x.npy and ", PartName(part),
                     "_y.npy differ in their first dimension: each must have one row per sample"));
  }
  return std::optional<MappedPart>(MappedPart{std::move(x), std::move(y)});
}

absl::StatusOr<FederationSummary> Summarize(const std::string& root,
                                            std::vector<ClientEntry> clients, bool count_labels) {
  FederationSummary summary;
  summary.clients.reserve(clients.size());
  bool first = true;
  for (ClientEntry& client : clients) {
    for (Part part : {Part::kTrain, Part::kTest}) {
      LEEWAY_RETURN_IF_ERROR(AddPart(root, &client, part, count_labels, &summary, &first));
    }
    summary.clients.push_back(std::move(client));
  }
  return summary;
}

Json SummaryToJson(const FederationSummary& summary) {
  Json json;
  json["clients"] = summary.clients.size();
  json["samples"] = {{"train", summary.train.samples()}, {"test", summary.test.samples()}};
  json["x"] = RowTypeToJson(summary.x);
  json["y"] = RowTypeToJson(summary.y);
  json["size_percentiles"] = {{"train", Percentiles(summary.train.sizes)},
                              {"test", Percentiles(summary.test.sizes)}};
  if (!summary.train.labels.empty()) {
    int64_t last = summary.train.labels.rbegin()->first;
    if (!summary.test.labels.empty()) last = std::max(last, summary.test.labels.rbegin()->first);
    json["classes"] = last + 1;
    json["label_histogram"] = {{"train", Histogram(summary.train.labels)},
                               {"test", Histogram(summary.test.labels)}};
  }
  if (summary.train.targets > 0) {
    json["targets"] = {{"train", summary.train.targets}, {"test", summary.test.targets}};
  }
  Json list = Json::array();
  for (const ClientEntry& client : summary.clients) {
    list.push_back({{"name", Printable(client.name)},
                    {"directory", client.directory},
                    {"train", client.train},
                    {"test", client.test}});
  }
  json["client_list"] = std::move(list);
  return json;
}

std::string Grouped(uint64_t value) {
  std::string digits = absl::StrCat(value);
  for (size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

std::vector<std::string> FeatureNames(const Json& description) {
  std::vector<std::string> names;
  const auto features = description.find("features");
  if (features == description.end() || !features->is_array()) return names;
  for (const Json& name : *features) {
    names.push_back(name.is_string() ? name.get<std::string>() : name.dump());
  }
  return names;
}

std::vector<std::string> NotesOn(const Json& description, const ColumnScales& scales) {
  std::vector<std::string> notes;
  const std::string advice = scales.Advice(FeatureNames(description));
  if (!advice.empty()) notes.push_back(advice);
  const uint64_t classes = description.value("classes", uint64_t{0});
  const uint64_t samples = description.value("samples", Json::object()).value("train", uint64_t{0});
  if (classes > kManyClasses && classes > samples / kFewSamplesPerClass) {
    notes.push_back(absl::StrCat(
        Grouped(classes), " classes for ", Grouped(samples),
        " training samples: did you mean --regression (targets that are real numbers)?"));
  }
  return notes;
}

}  // namespace leeway
