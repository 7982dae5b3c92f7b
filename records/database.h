// Database: one SQLite connection with its prepared statements, which are kept
// and used again. Only the run store includes this file. Not thread-safe.
#ifndef LEEWAY_RECORDS_DATABASE_H_
#define LEEWAY_RECORDS_DATABASE_H_

#include <sqlite3.h>

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status.h"

namespace leeway {

// Bytes that are not text.
struct Blob {
  absl::string_view bytes;
};

class Database {
 public:
  // `flags` are those of sqlite3_open_v2; `uri` may be a path or a file: URI.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path,
                                                        const std::string& uri, int flags) {
    sqlite3* connection = nullptr;
    const int code =
        sqlite3_open_v2(uri.c_str(), &connection, flags | SQLITE_OPEN_NOMUTEX, nullptr);
    std::unique_ptr<Database> database(new Database(path, connection));
    if (code != SQLITE_OK) return database->Error(code);
    sqlite3_extended_result_codes(connection, 1);
    // Readers of a WAL wait for the writer only in rare moments (recovery).
    sqlite3_busy_timeout(connection, 10'000);
    return database;
  }

  ~Database() {
    statements_.clear();
    sqlite3_close_v2(connection_);
  }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // A statement in use: gives back its rows, is reset when it goes out of scope.
  // Errors of binding show up in the first Step. At most one use of the same SQL
  // at a time.
  class Statement {
   public:
    Statement(Database* database, sqlite3_stmt* handle, int code)
        : database_(database), handle_(handle), code_(code) {}
    Statement(Statement&& other) noexcept
        : database_(other.database_),
          handle_(std::exchange(other.handle_, nullptr)),
          code_(other.code_) {}
    Statement& operator=(Statement&&) = delete;
    ~Statement() {
      if (handle_ == nullptr) return;
      sqlite3_reset(handle_);
      sqlite3_clear_bindings(handle_);
    }

    // True if there is a row.
    absl::StatusOr<bool> Step() {
      if (code_ == SQLITE_OK) {
        const int code = sqlite3_step(handle_);
        if (code == SQLITE_ROW) return true;
        if (code == SQLITE_DONE) return false;
        code_ = code;
      }
      return database_->Error(code_);
    }

    // Columns of the current row, from 0.
    int64_t Integer(int column) const { return sqlite3_column_int64(handle_, column); }
    double Real(int column) const { return sqlite3_column_double(handle_, column); }
    bool IsNull(int column) const { return sqlite3_column_type(handle_, column) == SQLITE_NULL; }
    int columns() const { return sqlite3_column_count(handle_); }
    // One of SQLite's types.
    int Type(int column) const { return sqlite3_column_type(handle_, column); }
    std::string Bytes(int column) const {
      // The order matters: asking for the blob first fixes what the size means.
      const void* bytes = sqlite3_column_blob(handle_, column);
      const int size = sqlite3_column_bytes(handle_, column);
      if (bytes == nullptr) return {};
      return std::string(static_cast<const char*>(bytes), static_cast<size_t>(size));
    }

   private:
    friend class Database;
    template <std::integral T>
    int Put(int index, T value) {
      return sqlite3_bind_int64(handle_, index, static_cast<int64_t>(value));
    }
    int Put(int index, double value) { return sqlite3_bind_double(handle_, index, value); }
    // The caller's bytes outlive the statement's use: no copy.
    int Put(int index, absl::string_view text) {
      return sqlite3_bind_text64(handle_, index, text.data() == nullptr ? "" : text.data(),
                                 text.size(), SQLITE_STATIC, SQLITE_UTF8);
    }
    int Put(int index, Blob blob) {
      const char* data = blob.bytes.data() == nullptr ? "" : blob.bytes.data();
      return sqlite3_bind_blob64(handle_, index, data, blob.bytes.size(), SQLITE_STATIC);
    }
    int Put(int index, std::nullptr_t) { return sqlite3_bind_null(handle_, index); }
    template <typename T>
    void Bind(int index, const T& value) {
      if (code_ == SQLITE_OK) code_ = Put(index, value);
    }

    Database* database_;
    sqlite3_stmt* handle_;
    int code_;
  };

  // Text and blob arguments must outlive the statement's use.
  template <typename... Args>
  Statement Query(const char* sql, const Args&... args) {
    auto [entry, is_new] = statements_.try_emplace(sql);
    int code = SQLITE_OK;
    if (entry->second == nullptr) {
      sqlite3_stmt* handle = nullptr;
      code = sqlite3_prepare_v3(connection_, sql, -1, SQLITE_PREPARE_PERSISTENT, &handle, nullptr);
      entry->second.reset(handle);
    }
    Statement statement(this, entry->second.get(), code);
    int index = 0;
    (statement.Bind(++index, args), ...);
    return statement;
  }

  // For statements that give no rows.
  template <typename... Args>
  absl::Status Execute(const char* sql, const Args&... args) {
    return Query(sql, args...).Step().status();
  }

  // Several statements, without arguments, not kept.
  absl::Status Script(const char* sql) {
    const int code = sqlite3_exec(connection_, sql, nullptr, nullptr, nullptr);
    return code == SQLITE_OK ? absl::OkStatus() : Error(code);
  }

  // Runs `work` in one transaction: all of it or nothing. With `keep_open` it ends with
  // the next one's, or with Commit; what fails then takes all of them back.
  template <typename Work>
  absl::Status Transaction(const Work& work, bool keep_open = false) {
    if (!open()) LEEWAY_RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
    absl::Status status = work();
    if (status.ok() && !keep_open) status = Execute("COMMIT");
    // Some errors have rolled back already; then this has nothing to do.
    if (!status.ok()) Rollback();
    return status;
  }
  // Runs `work`, which only reads, on the state of one moment.
  template <typename Work>
  absl::Status Snapshot(const Work& work) {
    if (open()) return work();
    LEEWAY_RETURN_IF_ERROR(Execute("BEGIN"));
    absl::Status status = work();
    Rollback();
    return status;
  }
  // Ends the transaction that was kept open, if there is one.
  absl::Status Commit() {
    return open() ? Transaction([] { return absl::OkStatus(); }) : absl::OkStatus();
  }
  // Takes it back.
  void Rollback() {
    if (open()) Execute("ROLLBACK").IgnoreError();
  }

  // In the middle of a transaction.
  bool open() const { return sqlite3_get_autocommit(connection_) == 0; }

  absl::Status Error(int code) const {
    const std::string text = absl::StrCat(
        path_, ": ", connection_ == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(connection_));
    switch (code & 0xff) {
      case SQLITE_FULL:
        return absl::ResourceExhaustedError(
            absl::StrCat("the disk that holds ", path_, " is full; free some space (", text, ")"));
      case SQLITE_CORRUPT:
      case SQLITE_NOTADB:
        return absl::DataLossError(
            absl::StrCat(text, "; restore the file from a copy or start a new run"));
      case SQLITE_BUSY:
      case SQLITE_LOCKED:
        return absl::UnavailableError(absl::StrCat(text, "; another program is writing to it"));
      case SQLITE_CANTOPEN:
      case SQLITE_PERM:
      case SQLITE_READONLY:
        return absl::PermissionDeniedError(
            absl::StrCat(text, "; check the permissions of the directory"));
      case SQLITE_CONSTRAINT:
        return absl::AlreadyExistsError(text);
      default:
        return absl::InternalError(absl::StrCat(text, " (SQLite code ", code, ")"));
    }
  }

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* handle) const { sqlite3_finalize(handle); }
  };

  Database(std::string path, sqlite3* connection)
      : path_(std::move(path)), connection_(connection) {}

  const std::string path_;
  sqlite3* const connection_;
  // By the address of their SQL, which is a literal.
  std::map<const char*, std::unique_ptr<sqlite3_stmt, Finalize>> statements_;
};

}  // namespace leeway

#endif  // LEEWAY_RECORDS_DATABASE_H_
