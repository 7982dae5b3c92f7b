// Seal: a digest over everything in a run's database that a resumed server reads, written as
// the last step of every transaction. A changed bit, a row that was altered, added or taken
// out is found and named by the table it is in. Without a key it finds accidents; with a key
// (HMAC-SHA256) nobody without the key can write a seal that fits
// (docs/reliability.md). Only the run store includes this file. Not thread-safe.
#ifndef LEEWAY_RECORDS_SEAL_H_
#define LEEWAY_RECORDS_SEAL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/running_digest.h"
#include "records/database.h"

namespace leeway {

class Seal {
 public:
  // The database outlives the seal. An empty key is none.
  Seal(Database* db, std::string key) : db_(*db), key_(std::move(key)) { Forget(); }

  // Inside a transaction, after all else that it writes.
  absl::Status Write();
  // DataLoss, naming the table, if what is stored is not what was sealed;
  // FailedPrecondition if the seal was made with another key, or without one. In a
  // transaction, or while nobody writes.
  absl::Status Check();
  // A transaction was taken back: what has been read since may be gone.
  void Forget();

 private:
  // A table whose rows are only ever added, in the order of its first column: rows that were
  // read once are not read again.
  struct Table {
    const char* name;
    const char* rows_after;  // the query for rows after a position, in order
    int64_t last = -1;       // first column of the last row read
    std::unique_ptr<RunningDigest> digest;
  };

  // Digests of all tables and values, a line each.
  absl::StatusOr<std::string> Lines();
  absl::Status Append(Table& table);
  std::string Sign(const std::string& lines) const;

  Database& db_;
  const std::string key_;
  std::vector<Table> tables_;
};

}  // namespace leeway

#endif  // LEEWAY_RECORDS_SEAL_H_
