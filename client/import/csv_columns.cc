#include "client/import/csv_columns.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/import/client_name.h"
#include "common/status.h"

namespace leeway {
namespace {

absl::Status Assign(const std::string& wanted, Role role, const char* option,
                    std::vector<CsvColumn>* columns) {
  const auto named_so = [&](const CsvColumn& column) { return column.name == wanted; };
  auto found = std::find_if(columns->begin(), columns->end(), named_so);
  if (std::count_if(columns->begin(), columns->end(), named_so) > 1) {
    return absl::InvalidArgumentError(absl::StrCat(option, ": there are several columns ",
                                                   Printable(wanted),
                                                   "; give the column's number from 0 instead"));
  }
  uint32_t index = 0;
  if (found == columns->end() && absl::SimpleAtoi(wanted, &index) && index < columns->size()) {
    found = columns->begin() + index;
  }
  if (found == columns->end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        option, ": there is no column ", Printable(wanted), "; the columns are ",
        absl::StrJoin(
            *columns, ", ",
            [](std::string* out, const CsvColumn& column) { *out += Printable(column.name); }),
        " (or their numbers from 0)"));
  }
  if (found->role != Role::kFeature) {
    return absl::InvalidArgumentError(absl::StrCat(option, ": column ", Printable(wanted),
                                                   " is already used for something else"));
  }
  found->role = role;
  return absl::OkStatus();
}

}  // namespace

std::optional<double> ParseNumber(const std::string& cell) {
  double value = 0;
  if (!absl::SimpleAtod(cell, &value) || !std::isfinite(value)) return std::nullopt;
  return value;
}

uint32_t Levels::Add(const std::string& cell) {
  const std::optional<double> number = ParseNumber(cell);
  // %.15g keeps 0.1 as "0.1"; levels that close together are one level.
  const std::string name = number.has_value() ? absl::StrFormat("%.15g", *number + 0.0) : cell;
  const auto [entry, fresh] = numbers_.try_emplace(name, static_cast<uint32_t>(names_.size()));
  if (fresh) names_.push_back(name);
  return entry->second;
}

bool Levels::AllNumbers() const {
  return std::all_of(names_.begin(), names_.end(),
                     [](const std::string& name) { return ParseNumber(name).has_value(); });
}

std::vector<uint32_t> Levels::Sorted() const {
  std::vector<uint32_t> order(names_.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [this](uint32_t a, uint32_t b) {
    const std::optional<double> x = ParseNumber(names_[a]);
    const std::optional<double> y = ParseNumber(names_[b]);
    if (x.has_value() != y.has_value()) return x.has_value();
    if (x.has_value() && *x != *y) return *x < *y;
    return names_[a] < names_[b];
  });
  return order;
}

std::vector<uint32_t> Levels::Ranks() const {
  const std::vector<uint32_t> order = Sorted();
  std::vector<uint32_t> ranks(order.size());
  for (uint32_t rank = 0; rank < order.size(); ++rank) ranks[order[rank]] = rank;
  return ranks;
}

std::vector<std::string> Levels::SortedNames() const {
  std::vector<std::string> names;
  for (uint32_t level : Sorted()) names.push_back(names_[level]);
  return names;
}

absl::StatusOr<std::vector<CsvColumn>> AssignRoles(const std::vector<std::string>& names,
                                                   const CsvOptions& options) {
  std::vector<CsvColumn> columns;
  for (const std::string& name : names) columns.push_back({name, Role::kFeature});
  LEEWAY_RETURN_IF_ERROR(Assign(options.label, Role::kLabel, "--label", &columns));
  if (!options.client_column.empty()) {
    LEEWAY_RETURN_IF_ERROR(
        Assign(options.client_column, Role::kClient, "--client-column", &columns));
  }
  if (!options.client_from.empty()) {
    LEEWAY_RETURN_IF_ERROR(Assign(options.client_from, Role::kClient, "--client-from", &columns));
  }
  for (const std::string& name : options.drop_columns) {
    LEEWAY_RETURN_IF_ERROR(Assign(name, Role::kDropped, "--drop-columns", &columns));
  }
  for (const std::string& name : options.one_hot) {
    LEEWAY_RETURN_IF_ERROR(Assign(name, Role::kOneHot, "--one-hot", &columns));
  }
  if (std::none_of(columns.begin(), columns.end(), [](const CsvColumn& column) {
        return column.role == Role::kFeature || column.role == Role::kOneHot;
      })) {
    return absl::InvalidArgumentError(
        "no column is left as a feature; use fewer --drop-columns, or check --delimiter");
  }
  return columns;
}

absl::StatusOr<std::optional<ClientMap>> ClientsFrom(const CsvOptions& options) {
  const int ways = (options.map.empty() ? 0 : 1) + (options.client_prefix > 0 ? 1 : 0);
  if (options.client_from.empty() ? ways > 0 : ways != 1) {
    return absl::InvalidArgumentError(
        "--client-from COLUMN goes with either --map FILE (rows of code and client) or "
        "--client-prefix N (the first N characters of the code)");
  }
  if (options.client_from.empty()) return std::optional<ClientMap>();
  if (!options.client_column.empty()) {
    return absl::InvalidArgumentError(
        "--client-column and --client-from both say who the client is; give one of them");
  }
  if (options.map.empty()) return std::optional(ClientMap::OfPrefix(options.client_prefix));
  LEEWAY_ASSIGN_OR_RETURN(ClientMap map, ClientMap::Read(options.map, options.delimiter));
  return std::optional<ClientMap>(std::move(map));
}

}  // namespace leeway
