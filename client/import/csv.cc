#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/import/byte_stream.h"
#include "client/import/client_map.h"
#include "client/import/client_name.h"
#include "client/import/csv_columns.h"
#include "client/import/csv_reader.h"
#include "client/import/importers.h"
#include "client/import/progress.h"
#include "common/rng.h"
#include "common/status.h"

namespace leeway {
namespace {

struct ClientRows {
  std::string file;             // where it was first seen
  std::vector<double> cells;    // numbers, and numbers of levels, row by row
  std::vector<uint32_t> label;  // level of the label, by row
  uint64_t dropped = 0;         // rows with a missing value
  std::vector<uint32_t> part[2];
};

// All files of one import, in memory, and what is learned over all of them.
class CsvTable {
 public:
  CsvTable(const CsvOptions& options, std::optional<ClientMap> map)
      : options_(options), map_(std::move(map)) {}

  absl::Status ReadFile(const std::string& path) {
    LEEWAY_ASSIGN_OR_RETURN(CsvReader reader, CsvReader::Open(path, options_.delimiter));
    std::string client = std::filesystem::path(std::string(absl::StripSuffix(path, ".gz"))).stem();
    client = std::string(absl::StripPrefix(client, options_.strip_prefix));
    if (options_.client_column.empty() && options_.client_from.empty()) {
      std::string& first = clients_[client].file;
      if (!first.empty()) {
        return absl::AlreadyExistsError(absl::StrCat(path, " and ", first, " both name the client ",
                                                     Printable(client),
                                                     "; rename one, or use --client-column"));
      }
      first = path;
    }
    std::vector<std::string> cells;
    for (bool first = true;; first = false) {
      LEEWAY_ASSIGN_OR_RETURN(const bool more, reader.Next(&cells));
      if (!more) return absl::OkStatus();
      if (first) {
        LEEWAY_RETURN_IF_ERROR(Annotate(SetNames(cells), path));
        if (options_.header) continue;
      }
      LEEWAY_RETURN_IF_ERROR(Annotate(AddRow(path, client, cells), reader.Where()));
    }
  }

  absl::Status Write(FederationWriter* writer, Json* description) {
    if (columns_.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(options_.sources[0], ": holds no row"));
    }
    for (const Levels& levels : levels_) ranks_.push_back(levels.Ranks());
    PrepareLabels();
    for (auto& [name, client] : clients_) Split(name, &client);
    if (options_.scale == "standard") Standardize();
    for (const auto& [name, client] : clients_) {
      for (Part part : {Part::kTrain, Part::kTest}) {
        if (part == Part::kTest && client.part[1].empty()) continue;
        LEEWAY_RETURN_IF_ERROR(Annotate(WritePart(name, client, part, writer), client.file));
      }
    }
    Describe(description);
    return absl::OkStatus();
  }

 private:
  absl::Status SetNames(const std::vector<std::string>& first_row) {
    std::vector<std::string> names = options_.header ? first_row : options_.columns;
    for (size_t i = names.size();
         !options_.header && options_.columns.empty() && i < first_row.size(); ++i) {
      names.push_back(absl::StrCat(i));
    }
    if (columns_.empty()) {
      LEEWAY_ASSIGN_OR_RETURN(columns_, AssignRoles(names, options_));
      levels_.resize(columns_.size());
      mean_.assign(columns_.size(), 0.0);
      deviation_.assign(columns_.size(), 1.0);
      for (size_t i = 0; i < columns_.size(); ++i) {
        const Role role = columns_[i].role;
        if (role == Role::kFeature || role == Role::kOneHot) features_.push_back(i);
        if (role == Role::kLabel) label_ = i;
      }
      return absl::OkStatus();
    }
    const bool same = std::equal(
        names.begin(), names.end(), columns_.begin(), columns_.end(),
        [](const std::string& name, const CsvColumn& column) { return name == column.name; });
    if (same) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("has ", names.size(), " columns, or other names, than the first file (",
                     columns_.size(), ")"));
  }

  bool Missing(const std::string& cell) const {
    return cell.empty() || std::find(options_.missing.begin(), options_.missing.end(), cell) !=
                               options_.missing.end();
  }

  // The client that a cell of the client's column stands for.
  absl::StatusOr<std::string> ClientOf(const std::string& cell) const {
    if (!map_.has_value() || Missing(cell)) return cell;
    const std::optional<std::string> client = map_->Find(cell);
    if (client.has_value()) return *client;
    return absl::InvalidArgumentError(
        absl::StrCat("column ", Printable(options_.client_from), " is \"", Printable(cell),
                     "\", which is not in ", options_.map,
                     "; add it there, or a line \"*,NAME\" for all others"));
  }

  absl::Status AddRow(const std::string& path, std::string name,
                      const std::vector<std::string>& cells) {
    if (cells.size() != columns_.size()) {
      return absl::InvalidArgumentError(absl::StrCat("client ", Printable(name), ": has ",
                                                     cells.size(), " columns, expected ",
                                                     columns_.size()));
    }
    bool missing = false;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (columns_[i].role == Role::kClient) {
        LEEWAY_ASSIGN_OR_RETURN(name, ClientOf(cells[i]));
      }
      missing |= columns_[i].role != Role::kDropped && Missing(cells[i]);
    }
    ClientRows& client = clients_[name];
    if (client.file.empty()) client.file = path;
    if (missing) {
      ++client.dropped;
      return absl::OkStatus();
    }
    for (size_t i : features_) {
      if (columns_[i].role == Role::kOneHot) {
        client.cells.push_back(levels_[i].Add(cells[i]));
        continue;
      }
      LEEWAY_ASSIGN_OR_RETURN(const double value, Number(name, i, cells[i]));
      client.cells.push_back(value);
    }
    const bool real = options_.regression || options_.label_positive_above.has_value();
    if (real) LEEWAY_RETURN_IF_ERROR(Number(name, label_, cells[label_]).status());
    client.label.push_back(levels_[label_].Add(cells[label_]));
    return absl::OkStatus();
  }

  absl::StatusOr<double> Number(const std::string& client, size_t column,
                                const std::string& cell) const {
    const std::optional<double> value = ParseNumber(cell);
    if (value.has_value() && std::abs(*value) < 3e38) return *value;
    return absl::InvalidArgumentError(
        absl::StrCat("client ", Printable(client), ": column ", Printable(columns_[column].name),
                     " is \"", Printable(cell),
                     "\", not a number; use --one-hot for categories, --missing for a mark of "
                     "missing values, or --drop-columns"));
  }

  void Split(const std::string& name, ClientRows* client) const {
    std::vector<uint32_t> order(client->label.size());
    std::iota(order.begin(), order.end(), 0U);
    if (order.empty()) return;
    Rng rng(options_.seed, 0, ClientKey(name), Purpose::kPartition);
    rng.Shuffle(order);
    const auto asked = static_cast<size_t>(
        std::floor(options_.test_fraction * static_cast<double>(order.size()) + 0.5));
    const auto test = static_cast<std::ptrdiff_t>(std::min(asked, order.size() - 1));
    client->part[1].assign(order.begin(), order.begin() + test);
    client->part[0].assign(order.begin() + test, order.end());
    for (std::vector<uint32_t>& rows : client->part) std::sort(rows.begin(), rows.end());
  }

  // Mean and deviation of each number column over all training rows; constant columns
  // are left alone.
  void Standardize() {
    for (size_t f = 0; f < features_.size(); ++f) {
      if (columns_[features_[f]].role != Role::kFeature) continue;
      double count = 0;
      double mean = 0;
      double squares = 0;  // of deviations from the running mean (Welford)
      for (const auto& [name, client] : clients_) {
        for (uint32_t row : client.part[0]) {
          const double value = client.cells[row * features_.size() + f];
          const double change = value - mean;
          mean += change / ++count;
          squares += change * (value - mean);
        }
      }
      // Centred, a constant column would be one of zeros, and its scale is not known.
      if (!(squares > 0)) continue;
      mean_[features_[f]] = mean;
      deviation_[features_[f]] = std::sqrt(squares / count);
    }
  }

  // One row of features: numbers scaled, categories as one-hot without the first level.
  void AppendFeatures(const double* cells, std::vector<float>* x) const {
    for (size_t f = 0; f < features_.size(); ++f) {
      const size_t column = features_[f];
      if (columns_[column].role == Role::kFeature) {
        x->push_back(static_cast<float>((cells[f] - mean_[column]) / deviation_[column]));
        continue;
      }
      const uint32_t rank = ranks_[column][static_cast<uint32_t>(cells[f])];
      for (uint32_t level = 1; level < ranks_[column].size(); ++level) {
        x->push_back(level == rank ? 1.0F : 0.0F);
      }
    }
  }

  std::vector<std::string> FeatureNames() const {
    std::vector<std::string> names;
    for (size_t column : features_) {
      if (columns_[column].role == Role::kFeature) {
        names.push_back(columns_[column].name);
        continue;
      }
      const std::vector<std::string> levels = levels_[column].SortedNames();
      for (size_t i = 1; i < levels.size(); ++i) {
        names.push_back(absl::StrCat(columns_[column].name, "=", levels[i]));
      }
    }
    return names;
  }

  // The label of each level: a real number, or a class when labels are all whole
  // numbers, all words, or cut by --label-positive-above.
  void PrepareLabels() {
    const Levels& levels = levels_[label_];
    const bool words = !levels.AllNumbers();
    real_label_ = options_.regression;
    for (uint32_t i = 0; i < levels.size(); ++i) {
      const double value = words ? ranks_[label_][i] : *ParseNumber(levels.name(i));
      const bool whole = value == std::floor(value) && std::abs(value) < 1e15;
      real_label_ |= !whole && !options_.label_positive_above.has_value();
      label_values_.push_back(options_.label_positive_above.has_value()
                                  ? (value > *options_.label_positive_above ? 1.0 : 0.0)
                                  : value);
    }
  }

  absl::Status WritePart(const std::string& name, const ClientRows& client, Part part,
                         FederationWriter* writer) const {
    const std::vector<uint32_t>& rows = client.part[static_cast<size_t>(part)];
    std::vector<float> x;
    std::vector<int64_t> classes;
    std::vector<float> reals;
    for (uint32_t row : rows) {
      AppendFeatures(&client.cells[row * features_.size()], &x);
      const double label = label_values_[client.label[row]];
      if (real_label_) {
        reals.push_back(static_cast<float>(label));
      } else {
        classes.push_back(static_cast<int64_t>(label));
      }
    }
    const uint64_t width = rows.empty() ? 0 : x.size() / rows.size();
    return writer->Append(
        name, part, RowsOf(x, rows.size(), {width}),
        real_label_ ? RowsOf(reals, rows.size(), {}) : RowsOf(classes, rows.size(), {}));
  }

  void Describe(Json* description) const {
    (*description)["features"] = FeatureNames();
    Json one_hot = Json::object();
    Json scaling = Json::object();
    for (size_t i : features_) {
      if (columns_[i].role == Role::kOneHot) {
        one_hot[columns_[i].name] = levels_[i].SortedNames();
      } else if (options_.scale == "standard") {
        scaling[columns_[i].name] = {{"mean", mean_[i]}, {"sd", deviation_[i]}};
      }
    }
    (*description)["one_hot_levels"] = std::move(one_hot);
    (*description)["scaling"] = std::move(scaling);
    if (options_.label_positive_above.has_value()) {
      const std::string limit = absl::StrCat(*options_.label_positive_above);
      (*description)["label_levels"] = {absl::StrCat(options_.label, " <= ", limit),
                                        absl::StrCat(options_.label, " > ", limit)};
    } else if (!levels_[label_].AllNumbers()) {
      (*description)["label_levels"] = levels_[label_].SortedNames();
    }
    uint64_t dropped = 0;
    Json by_client = Json::object();
    for (const auto& [name, client] : clients_) {
      dropped += client.dropped;
      if (client.dropped > 0) by_client[Printable(name)] = client.dropped;
    }
    (*description)["skipped"]["rows_with_missing_values"] = dropped;
    (*description)["rows_with_missing_values"] = std::move(by_client);
  }

  const CsvOptions& options_;
  const std::optional<ClientMap> map_;
  std::vector<CsvColumn> columns_;
  std::vector<Levels> levels_;    // by column; empty for numbers
  std::vector<size_t> features_;  // columns of numbers and categories
  size_t label_ = 0;
  std::vector<std::vector<uint32_t>> ranks_;  // of levels, by column
  std::vector<double> label_values_;          // by level of the label
  bool real_label_ = false;
  std::vector<double> mean_;  // by column
  std::vector<double> deviation_;
  std::map<std::string, ClientRows> clients_;
};

Json OptionsToJson(const CsvOptions& options) {
  Json json;
  json["label"] = options.label;
  if (options.label_positive_above) json["label_positive_above"] = *options.label_positive_above;
  json["client_column"] = options.client_column;
  if (!options.client_from.empty()) {
    json["client_from"] = options.client_from;
    if (options.map.empty()) json["client_prefix"] = options.client_prefix;
    if (!options.map.empty()) json["map"] = options.map;
  }
  json["header"] = options.header;
  json["missing"] = options.missing;
  json["drop_columns"] = options.drop_columns;
  json["one_hot"] = options.one_hot;
  json["scale"] = options.scale;
  json["test_fraction"] = options.test_fraction;
  json["seed"] = options.seed;
  return json;
}

}  // namespace

absl::StatusOr<Json> ImportCsv(const CsvOptions& options) {
  LEEWAY_ASSIGN_OR_RETURN(std::optional<ClientMap> map, ClientsFrom(options));
  if (!(options.test_fraction >= 0 && options.test_fraction < 1)) {
    return absl::InvalidArgumentError("--test-fraction must be in [0, 1)");
  }
  if (options.header && !options.columns.empty()) {
    return absl::InvalidArgumentError("--columns is for files without a header: add --no-header");
  }
  LEEWAY_ASSIGN_OR_RETURN(std::unique_ptr<FederationWriter> writer,
                          FederationWriter::Create(options.writer));
  std::vector<std::string> files;
  for (const std::string& source : options.sources) {
    LEEWAY_ASSIGN_OR_RETURN(std::vector<std::string> some, ListFiles(source, {}));
    files.insert(files.end(), some.begin(), some.end());
  }
  if (files.empty())
    return absl::NotFoundError(absl::StrCat(options.sources[0], ": holds no file"));
  CsvTable table(options, std::move(map));
  Progress progress("reading", "files", files.size());
  for (const std::string& file : files) {
    LEEWAY_RETURN_IF_ERROR(table.ReadFile(file));
    progress.Step();
  }
  Json description = {{"kind", "csv"}, {"source", options.sources}};
  description["options"] = OptionsToJson(options);
  LEEWAY_RETURN_IF_ERROR(table.Write(writer.get(), &description));
  return writer->Finish(std::move(description));
}

}  // namespace leeway
