// What each column of a CSV import is for, and the levels of the columns that
// hold categories. Plain data and small functions for csv.cc.
#ifndef LEEWAY_CLIENT_IMPORT_CSV_COLUMNS_H_
#define LEEWAY_CLIENT_IMPORT_CSV_COLUMNS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/import/client_map.h"
#include "client/import/importers.h"

namespace leeway {

// A cell as a finite number.
std::optional<double> ParseNumber(const std::string& cell);

// The different values of a column. Numbers are the same however they are
// written ("1" and "1.0").
class Levels {
 public:
  // The number of the level of `cell`, in order of appearance.
  uint32_t Add(const std::string& cell);
  size_t size() const { return names_.size(); }
  const std::string& name(uint32_t level) const { return names_[level]; }
  bool AllNumbers() const;
  // Levels by rising value: numbers first, then the rest by the alphabet.
  std::vector<uint32_t> Sorted() const;
  // Inverse of Sorted(): the rank of each level.
  std::vector<uint32_t> Ranks() const;
  std::vector<std::string> SortedNames() const;

 private:
  std::unordered_map<std::string, uint32_t> numbers_;
  std::vector<std::string> names_;
};

enum class Role { kFeature, kOneHot, kLabel, kClient, kDropped };

struct CsvColumn {
  std::string name;
  Role role = Role::kFeature;
};

// Gives each column its role. Errors name the option that refers to a column
// that is not there or has another role already.
absl::StatusOr<std::vector<CsvColumn>> AssignRoles(const std::vector<std::string>& names,
                                                   const CsvOptions& options);

// How rows get their client from a code (--client-from); nullopt if they do not.
absl::StatusOr<std::optional<ClientMap>> ClientsFrom(const CsvOptions& options);

}  // namespace leeway

#endif  // LEEWAY_CLIENT_IMPORT_CSV_COLUMNS_H_
