// A table for a terminal: every column as wide as what is in it.
#ifndef LEEWAY_RECORDS_TEXT_TABLE_H_
#define LEEWAY_RECORDS_TEXT_TABLE_H_

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/utf8.h"

namespace leeway {

// The last column starts at the left, all others end at the right. Rows have a cell for each head.
inline std::string TextTable(const std::vector<std::string>& heads,
                             const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (size_t i = 0; i < heads.size(); ++i) {
    widths.push_back(Utf8Length(heads[i]));
    for (const auto& row : rows) widths[i] = std::max(widths[i], Utf8Length(row[i]));
  }
  std::string text;
  const auto add = [&](const std::vector<std::string>& cells) {
    for (size_t i = 0; i < cells.size(); ++i) {
      // Letters may have several bytes.
      const size_t space = i + 1 == cells.size() ? 0 : widths[i] - Utf8Length(cells[i]);
      absl::StrAppend(&text, "  ", std::string(space, ' '), cells[i]);
    }
    text += "\n";
  };
  add(heads);
  for (const auto& row : rows) add(row);
  return text;
}

}  // namespace leeway

#endif  // LEEWAY_RECORDS_TEXT_TABLE_H_
