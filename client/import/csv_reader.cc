#include "client/import/csv_reader.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status.h"

namespace leeway {
namespace {

// Cells of one row as they are found, character by character.
class RowScanner {
 public:
  RowScanner(char delimiter, std::vector<std::string>* cells)
      : delimiter_(delimiter), cells_(cells) {}

  // Scans one line; true when the row goes on in the next line.
  bool Scan(const std::string& line) {
    for (size_t i = 0; i < line.size(); ++i) {
      const char c = line[i];
      if (inside_ && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
        cell_.push_back('"');
        ++i;
      } else if (inside_ && c == '"') {
        inside_ = false;
      } else if (inside_) {
        cell_.push_back(c);
      } else if (c == '"' && absl::StripAsciiWhitespace(cell_).empty()) {
        cell_.clear();
        inside_ = quoted_ = true;
      } else if (c == delimiter_) {
        EndCell();
      } else if (!quoted_ || !absl::ascii_isspace(static_cast<unsigned char>(c))) {
        cell_.push_back(c);
      }
    }
    if (inside_) {
      cell_.push_back('\n');
    } else {
      EndCell();
    }
    return inside_;
  }

 private:
  void EndCell() {
    if (!quoted_) cell_ = std::string(absl::StripAsciiWhitespace(cell_));
    cells_->push_back(std::move(cell_));
    cell_.clear();
    quoted_ = false;
  }

  const char delimiter_;
  std::vector<std::string>* const cells_;
  std::string cell_;
  bool inside_ = false;  // between quotes
  bool quoted_ = false;
};

// The first line tells files that would be misread as a whole.
absl::Status CheckText(absl::string_view line) {
  if (absl::StartsWith(line, "\xff\xfe") || absl::StartsWith(line, "\xfe\xff")) {
    return absl::InvalidArgumentError("is UTF-16; convert it to UTF-8, for example with iconv");
  }
  if (line.find('\r') != absl::string_view::npos && line.find('"') == absl::string_view::npos) {
    return absl::InvalidArgumentError(
        "lines end with a lone carriage return; convert them, for example with tr '\\r' '\\n'");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CsvReader> CsvReader::Open(const std::string& path, char delimiter) {
  LEEWAY_ASSIGN_OR_RETURN(LineReader lines, LineReader::Open(path));
  return CsvReader(std::move(lines), delimiter);
}

absl::StatusOr<bool> CsvReader::Next(std::vector<std::string>* cells) {
  cells->clear();
  RowScanner scanner(delimiter_, cells);
  std::string line;
  bool inside = false;
  while (true) {
    LEEWAY_ASSIGN_OR_RETURN(const bool more, lines_.Next(&line));
    if (!more && inside) {
      return absl::DataLossError(absl::StrCat(Where(), ": a quoted cell does not end"));
    }
    if (!more) return false;
    if (std::exchange(first_, false)) {
      line = std::string(absl::StripPrefix(line, "\xef\xbb\xbf"));
      LEEWAY_RETURN_IF_ERROR(Annotate(CheckText(line), Where()));
    }
    if (!inside && absl::StripAsciiWhitespace(line).empty()) continue;
    inside = scanner.Scan(line);
    if (!inside) return true;
  }
}

}  // namespace leeway
