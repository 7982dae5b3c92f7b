#include "client/import/client_map.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/import/client_name.h"
#include "client/import/csv_reader.h"
#include "common/status.h"
#include "common/utf8.h"

namespace leeway {
namespace {

std::string Beginning(const std::string& text, uint32_t characters) {
  size_t end = 0;
  for (; characters > 0 && end < text.size(); --characters) {
    end += std::max<size_t>(1, Utf8SequenceLength(absl::string_view(text).substr(end)));
  }
  return text.substr(0, end);
}

}  // namespace

absl::StatusOr<ClientMap> ClientMap::Read(const std::string& path, char delimiter) {
  LEEWAY_ASSIGN_OR_RETURN(CsvReader reader, CsvReader::Open(path, delimiter));
  ClientMap map;
  std::vector<std::string> cells;
  while (true) {
    LEEWAY_ASSIGN_OR_RETURN(const bool more, reader.Next(&cells));
    if (!more) break;
    if (cells.size() != 2) {
      return absl::InvalidArgumentError(absl::StrCat(reader.Where(), ": has ", cells.size(),
                                                     " cells, expected two: code and client"));
    }
    std::string code = cells[0];
    const bool beginning = !code.empty() && code.back() == '*';
    if (beginning) code.pop_back();
    std::map<std::string, std::string>& codes = beginning ? map.beginnings_ : map.exact_;
    const auto [entry, fresh] = codes.emplace(code, cells[1]);
    if (!fresh && entry->second != cells[1]) {
      return absl::InvalidArgumentError(absl::StrCat(
          reader.Where(), ": code ", Printable(cells[0]), " stands for ", Printable(cells[1]),
          " here and for ", Printable(entry->second), " above; leave one out"));
    }
  }
  if (map.exact_.empty() && map.beginnings_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": holds no row, expected two columns: code and client"));
  }
  return map;
}

ClientMap ClientMap::OfPrefix(uint32_t characters) {
  ClientMap map;
  map.prefix_ = characters;
  return map;
}

std::optional<std::string> ClientMap::Find(const std::string& code) const {
  if (prefix_ > 0) return Beginning(code, prefix_);
  if (const auto found = exact_.find(code); found != exact_.end()) return found->second;
  for (size_t length = code.size() + 1; length-- > 0;) {
    const auto found = beginnings_.find(code.substr(0, length));
    if (found != beginnings_.end()) return found->second;
  }
  return std::nullopt;
}

}  // namespace leeway
