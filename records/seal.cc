#include "records/seal.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/digest.h"
#include "common/status.h"

namespace leeway {
namespace {

constexpr char kSeal[] = "seal";  // its key in the table run

// Every column with its type and length, so that no two rows give the same bytes.
std::string BytesOf(const Database::Statement& row) {
  std::string bytes;
  for (int i = 0; i < row.columns(); ++i) {
    const int type = row.Type(i);  // asked first: reading a value may convert it
    std::string value;
    if (type == SQLITE_FLOAT) {
      const double number = row.Real(i);  // all its bits, which its text has not
      value.assign(reinterpret_cast<const char*>(&number), sizeof(number));
    } else {
      value = row.Bytes(i);
    }
    absl::StrAppend(&bytes, type, ":", value.size(), ":", value, ";");
  }
  return bytes;
}

// What does not fit, of the first line that differs.
std::string FirstDifference(absl::string_view stored, absl::string_view found) {
  const std::vector<absl::string_view> before = absl::StrSplit(stored, '\n');
  const std::vector<absl::string_view> now = absl::StrSplit(found, '\n');
  for (size_t i = 0; i < std::max(before.size(), now.size()); ++i) {
    if (i < before.size() && i < now.size() && before[i] == now[i]) continue;
    const absl::string_view line = i < now.size() && !now[i].empty() ? now[i] : before[i];
    return std::string(line.substr(0, line.find(' ')));
  }
  return kSeal;
}

}  // namespace

void Seal::Forget() {
  tables_.clear();
  // A new table that is only ever added to is one more line here.
  tables_.push_back({"clients", "SELECT * FROM clients WHERE position > ? ORDER BY 1", -1, {}});
  tables_.push_back({"epochs", "SELECT * FROM epochs WHERE number > ? ORDER BY 1", -1, {}});
  tables_.push_back({"rounds", "SELECT * FROM rounds WHERE round > ? ORDER BY 1", -1, {}});
  tables_.push_back({"measures", "SELECT * FROM measures WHERE round > ? ORDER BY 1, 2", -1, {}});
  tables_.push_back({"events", "SELECT * FROM events WHERE sequence > ? ORDER BY 1", -1, {}});
  for (Table& table : tables_) table.digest = std::make_unique<RunningDigest>();
}

absl::Status Seal::Append(Table& table) {
  auto rows = db_.Query(table.rows_after, table.last);
  while (true) {
    LEEWAY_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return absl::OkStatus();
    table.digest->Add(BytesOf(rows));
    table.last = rows.Integer(0);
  }
}

absl::StatusOr<std::string> Seal::Lines() {
  std::string lines;
  for (Table& table : tables_) {
    LEEWAY_RETURN_IF_ERROR(Append(table));
    absl::StrAppend(&lines, table.name, " ", table.digest->Hex(), "\n");
  }
  RunningDigest names;
  {
    auto rows = db_.Query("SELECT * FROM names ORDER BY 1");
    while (true) {
      LEEWAY_ASSIGN_OR_RETURN(const bool more, rows.Step());
      if (!more) break;
      names.Add(BytesOf(rows));
    }
  }
  absl::StrAppend(&lines, "names ", names.Hex(), "\n");
  auto values = db_.Query("SELECT key, value FROM run WHERE key <> ? ORDER BY 1", kSeal);
  while (true) {
    LEEWAY_ASSIGN_OR_RETURN(const bool more, values.Step());
    if (!more) return lines;
    absl::StrAppend(&lines, "run.", values.Bytes(0), " ", Sha256Hex(BytesOf(values)), "\n");
  }
}

std::string Seal::Sign(const std::string& lines) const {
  return key_.empty() ? absl::StrCat("sha256 ", Sha256Hex(lines))
                      : absl::StrCat("hmac-sha256 ", HmacSha256Hex(key_, lines));
}

absl::Status Seal::Write() {
  LEEWAY_ASSIGN_OR_RETURN(const std::string lines, Lines());
  return db_.Execute("INSERT OR REPLACE INTO run(key, value) VALUES(?, ?)", kSeal,
                     absl::StrCat(lines, Sign(lines)));
}

absl::Status Seal::Check() {
  std::string stored;
  {
    auto row = db_.Query("SELECT value FROM run WHERE key = ?", kSeal);
    LEEWAY_ASSIGN_OR_RETURN(const bool found, row.Step());
    if (found) stored = row.Bytes(0);
  }
  LEEWAY_ASSIGN_OR_RETURN(const std::string lines, Lines());
  const std::string signature = Sign(lines);
  if (stored == absl::StrCat(lines, signature)) return absl::OkStatus();
  if (absl::StartsWith(stored, lines)) {
    const absl::string_view made = absl::string_view(stored).substr(lines.size());
    if (key_.empty() && absl::StartsWith(made, "hmac-sha256 ")) {
      return absl::FailedPreconditionError(
          "the run was sealed with a key; give the same --chain-key");
    }
    if (!key_.empty()) {
      return absl::FailedPreconditionError(
          "the seal was not made with this --chain-key; give the run's own key (or none, if it "
          "was started without)");
    }
  }
  return absl::DataLossError(absl::StrCat("'",
                                          FirstDifference(stored, absl::StrCat(lines, signature)),
                                          "' is not as the server wrote it; restore the "
                                          "directory from a copy or start a new run"));
}

}  // namespace leeway
