// Rows of a CSV file (RFC 4180: cells may be quoted, quoted cells may hold the
// delimiter, doubled quotes and line ends). Blanks around cells are taken off,
// empty lines are passed over. gzip is fine.
#ifndef LEEWAY_CLIENT_IMPORT_CSV_READER_H_
#define LEEWAY_CLIENT_IMPORT_CSV_READER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/import/byte_stream.h"

namespace leeway {

class CsvReader {
 public:
  static absl::StatusOr<CsvReader> Open(const std::string& path, char delimiter);
  // False at the end of the file.
  absl::StatusOr<bool> Next(std::vector<std::string>* cells);
  // "path:17", the line on which the last row ends.
  std::string Where() const { return lines_.Where(); }

 private:
  CsvReader(LineReader lines, char delimiter) : lines_(std::move(lines)), delimiter_(delimiter) {}
  LineReader lines_;
  char delimiter_;
  bool first_ = true;
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_IMPORT_CSV_READER_H_
