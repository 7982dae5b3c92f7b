#include "client/import/describe.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/import/client_name.h"
#include "common/status.h"

namespace leeway {
namespace {

constexpr size_t kLabelsPerLine = 6;
constexpr size_t kMostNamedLabels = 100;

std::string Text(const Json& json) {
  return json.is_string() ? json.get<std::string>() : json.dump();
}

std::string TypeText(const Json& type) {
  return absl::StrCat(type.value("type", "?"), " ", type["shape"].dump());
}

void AppendSizes(const Json& percentiles, const char* part, std::string* table) {
  if (!percentiles.contains(part) || !percentiles[part].is_object()) return;
  absl::StrAppendFormat(table, "  %-10s", part);
  for (const char* key : {"min", "p10", "p50", "p90", "max"}) {
    absl::StrAppendFormat(table, "%9s", Grouped(percentiles[part].value(key, uint64_t{0})));
  }
  table->push_back('\n');
}

// Labels that have names get a line each: a name may be long.
void AppendNamedLabels(const Json& counts, const Json& names, std::string* table) {
  for (const auto& [label, count] : counts.items()) {
    size_t index = names.size();
    const bool named = absl::SimpleAtoi(label, &index) && index < names.size();
    absl::StrAppendFormat(table, "%4s: %-8s %s\n", label, Grouped(count.get<uint64_t>()),
                          named ? Printable(Text(names[index])) : "");
  }
}

void AppendLabels(const Json& federation, const char* part, std::string* table) {
  const Json histogram = federation.value("label_histogram", Json::object());
  const Json names = federation.value("label_levels", Json::array());
  if (!histogram.contains(part) || histogram[part].empty()) return;
  if (names.is_array() && !names.empty() && names.size() <= kMostNamedLabels) {
    absl::StrAppend(table, "labels of ", part, " samples (label: count name)\n");
    return AppendNamedLabels(histogram[part], names, table);
  }
  absl::StrAppend(table, "labels of ", part, " samples (label: count)\n");
  size_t column = 0;
  for (const auto& [label, count] : histogram[part].items()) {
    absl::StrAppendFormat(table, "%4s: %-8s", label, Grouped(count.get<uint64_t>()));
    if (++column % kLabelsPerLine == 0) table->push_back('\n');
  }
  if (column % kLabelsPerLine != 0) table->push_back('\n');
}

// Token ids of all clients against the size of the vocabulary.
absl::Status CheckTokens(const std::string& root, const std::vector<ClientEntry>& clients,
                         int64_t size) {
  for (const ClientEntry& client : clients) {
    for (Part part : {Part::kTrain, Part::kTest}) {
      LEEWAY_ASSIGN_OR_RETURN(std::optional<MappedPart> mapped, MapPart(root, client, part));
      if (!mapped.has_value()) continue;
      for (const auto& [axis, array] : {std::pair{"x", &mapped->x}, std::pair{"y", &mapped->y}}) {
        for (int64_t id : IntegersOf(RowsOf(*array))) {
          if (id >= 0 && id < size) continue;
          return absl::OutOfRangeError(absl::StrCat(
              root, "/", client.directory, "/", PartName(part), "_", axis, ".npy: client ",
              Printable(client.name), ": token id ", id, " is unknown: the vocabulary has ", size));
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ColumnScales> ScalesOf(const std::string& root,
                                      const std::vector<ClientEntry>& clients) {
  ColumnScales scales;
  for (const ClientEntry& client : clients) {
    LEEWAY_ASSIGN_OR_RETURN(const std::optional<MappedPart> part,
                            MapPart(root, client, Part::kTrain));
    if (part.has_value()) scales.Add(RowsOf(part->x));
  }
  return scales;
}

absl::Status CheckLabels(const std::string& root, const FederationSummary& summary,
                         int64_t classes) {
  for (const PartSummary* part : {&summary.train, &summary.test}) {
    if (part->labels.empty()) continue;
    const int64_t first = part->labels.begin()->first;
    const int64_t last = part->labels.rbegin()->first;
    if (first < 0 || last >= classes) {
      return absl::OutOfRangeError(absl::StrCat(root, ": has labels from ", first, " to ", last,
                                                ", expected 0 to ", classes - 1));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckMatches(const std::string& root, const Json& recorded, const Json& found) {
  for (const char* key : {"clients", "samples", "x", "y", "size_percentiles"}) {
    if (recorded.contains(key) && recorded[key] == found[key]) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        root, ": federation.json and the files disagree about \"", key, "\" (",
        recorded.contains(key) ? recorded[key].dump() : "nothing", ", ", found[key].dump(),
        "); import it again, or remove federation.json to have it recomputed"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Json> DescribeFederation(const std::string& root, bool recount) {
  LEEWAY_ASSIGN_OR_RETURN(std::vector<ClientEntry> clients, ListClients(root));
  LEEWAY_ASSIGN_OR_RETURN(std::optional<Json> recorded, ReadDescription(root));
  const bool count = recount || !recorded.has_value();
  LEEWAY_ASSIGN_OR_RETURN(FederationSummary summary, Summarize(root, clients, count));
  const Json found = SummaryToJson(summary);
  if (recorded.has_value()) LEEWAY_RETURN_IF_ERROR(CheckMatches(root, *recorded, found));
  if (recount && recorded.has_value()) {
    if (recorded->contains("classes")) {
      LEEWAY_RETURN_IF_ERROR(CheckLabels(root, summary, (*recorded)["classes"].get<int64_t>()));
    }
    if (recorded->contains("vocabulary")) {
      const int64_t size = (*recorded)["vocabulary"].value("size", int64_t{0});
      LEEWAY_RETURN_IF_ERROR(CheckTokens(root, clients, size));
    }
  }
  if (recorded.has_value() && !recount) return *std::move(recorded);
  Json json = recorded.has_value() ? *std::move(recorded) : Json{{"source", root}};
  json.update(found);
  if (json.contains("notes")) return json;
  LEEWAY_ASSIGN_OR_RETURN(const ColumnScales scales, ScalesOf(root, clients));
  json["notes"] = NotesOn(json, scales);
  return json;
}

std::string SummaryTable(const Json& federation) {
  std::string table;
  const auto line = [&table](const char* name, const std::string& value) {
    absl::StrAppendFormat(&table, "%-12s%s\n", name, value);
  };
  if (federation.contains("kind")) line("kind", Text(federation["kind"]));
  if (federation.contains("source")) line("source", Text(federation["source"]));
  line("clients", Grouped(federation.value("clients", uint64_t{0})));
  const Json& samples = federation["samples"];
  line("samples", absl::StrCat(Grouped(samples.value("train", uint64_t{0})), " train, ",
                               Grouped(samples.value("test", uint64_t{0})), " test"));
  if (federation.contains("central_test_samples")) {
    line("evaluator", absl::StrCat(Grouped(federation["central_test_samples"].get<uint64_t>()),
                                   " test samples"));
  }
  line("x", TypeText(federation["x"]));
  line("y", TypeText(federation["y"]));
  if (federation.contains("classes")) line("classes", Text(federation["classes"]));
  if (federation.contains("vocabulary")) {
    line("vocabulary", Text(federation["vocabulary"].value("order", Json())));
  }
  if (federation.contains("targets")) {
    line("targets",
         absl::StrCat(Grouped(federation["targets"].value("train", uint64_t{0})), " train, ",
                      Grouped(federation["targets"].value("test", uint64_t{0})), " test"));
  }
  const Json skipped = federation.value("skipped", Json::object());
  for (const auto& [what, count] : skipped.items()) {
    if (count.is_number_unsigned() && count.get<uint64_t>() > 0) {
      line("left out", absl::StrCat(Grouped(count.get<uint64_t>()), " ",
                                    absl::StrReplaceAll(what, {{"_", " "}})));
    }
  }
  absl::StrAppendFormat(&table, "%-12s%9s%9s%9s%9s%9s\n", "client size", "min", "10 %", "50 %",
                        "90 %", "max");
  AppendSizes(federation["size_percentiles"], "train", &table);
  AppendSizes(federation["size_percentiles"], "test", &table);
  AppendLabels(federation, "train", &table);
  AppendLabels(federation, "test", &table);
  for (const Json& note : federation.value("notes", Json::array())) line("note", Text(note));
  return table;
}

}  // namespace leeway
