// ModelShelf: the models of a run inside its store. Small models are rows of the
// database, so that a small round costs one sync; larger ones are files that are
// written before the end of the transaction that refers to them. Models with a name also
// have a file that people can open. Only the run store includes this file.
// Not thread-safe; the database must outlive it.
#ifndef LEEWAY_RECORDS_MODEL_SHELF_H_
#define LEEWAY_RECORDS_MODEL_SHELF_H_

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/digest.h"
#include "common/durable_file.h"
#include "common/status.h"
#include "records/database.h"
#include "records/store.h"

namespace leeway {

// Models to put on the shelf in one transaction, and names to set. Refers to the
// caller's models and names.
struct ModelBatch {
  absl::Span<const ModelPtr> models;
  const std::vector<NamedModel>& names;
};

class ModelShelf {
 public:
  ModelShelf(std::string directory, Database* db) : directory_(std::move(directory)), db_(*db) {}

  // Whether files are synced before they count as written.
  void set_sync(bool sync) { sync_ = sync; }

  // Before the transaction: the files that it will refer to. With `later` they wait for
  // WriteDeferred, before the transaction's end; named ones do not.
  absl::Status WriteFiles(const ModelBatch& batch, bool later = false) {
    for (const ModelPtr& model : batch.models) {
      if (model->file.size() <= kLargestRow) continue;
      deferred_.push_back(model);
    }
    if (!later || !batch.names.empty()) LEEWAY_RETURN_IF_ERROR(WriteDeferred());
    for (const NamedModel& named : batch.names) LEEWAY_RETURN_IF_ERROR(WriteNamed(named, batch));
    return absl::OkStatus();
  }
  absl::Status WriteDeferred() {
    for (const ModelPtr& model : std::exchange(deferred_, {})) {
      const std::string path = Path(model->sha256);
      std::error_code absent;  // then the size is another
      if (std::filesystem::file_size(path, absent) == model->file.size()) continue;
      LEEWAY_RETURN_IF_ERROR(WriteFile(path, model->file.view(), sync_));
    }
    return absl::OkStatus();
  }

  // Inside the transaction.
  absl::Status Insert(const ModelBatch& batch) {
    // Replacing gives a model that comes again a new rowid: the newest.
    static constexpr char kInsert[] = "INSERT OR REPLACE INTO models(sha256, bytes) VALUES(?, ?)";
    for (const ModelPtr& model : batch.models) {
      std::erase(stale_files_, Path(model->sha256));  // it is back before it was removed
      LEEWAY_RETURN_IF_ERROR(model->file.size() <= kLargestRow
                                 ? db_.Execute(kInsert, model->sha256, Blob{model->file.view()})
                                 : db_.Execute(kInsert, model->sha256, nullptr));
    }
    for (const NamedModel& named : batch.names) {
      LEEWAY_RETURN_IF_ERROR(db_.Execute("INSERT OR REPLACE INTO names(name, sha256) VALUES(?, ?)",
                                         named.name, named.sha256));
    }
    return absl::OkStatus();
  }

  // Inside the transaction: forgets all models but the named ones and the `keep`
  // newest others.
  absl::Status Prune(size_t keep) {
    std::vector<std::string> stale;
    {
      auto rows = db_.Query(
          "SELECT sha256, bytes IS NULL FROM models "
          "WHERE NOT EXISTS (SELECT 1 FROM names WHERE names.sha256 = models.sha256) "
          "ORDER BY rowid DESC LIMIT -1 OFFSET ?",
          keep);
      while (true) {
        LEEWAY_ASSIGN_OR_RETURN(const bool more, rows.Step());
        if (!more) break;
        stale.push_back(rows.Bytes(0));
        if (rows.Integer(1) != 0) stale_files_.push_back(Path(stale.back()));
      }
    }
    for (const std::string& sha256 : stale) {
      std::erase_if(deferred_, [&](const ModelPtr& model) { return model->sha256 == sha256; });
      LEEWAY_RETURN_IF_ERROR(db_.Execute("DELETE FROM models WHERE sha256 = ?", sha256));
    }
    return absl::OkStatus();
  }

  // After the transaction: the files that Prune forgot.
  void RemoveStaleFiles() {
    for (const std::string& path : std::exchange(stale_files_, {})) unlink(path.c_str());
  }

  // The transaction was taken back.
  void Forget() {
    deferred_.clear();
    stale_files_.clear();
  }

  // What a crash may leave: half-written files, and large models whose round was
  // never committed.
  absl::Status RemoveLeftovers() {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(directory_ + "/models", error)) {
      const std::string name = entry.path().stem();
      bool leftover = entry.path().extension() == kTemporarySuffix;
      if (!leftover && name.size() == 64) {
        auto row = db_.Query("SELECT 1 FROM models WHERE sha256 = ?", name);
        LEEWAY_ASSIGN_OR_RETURN(const bool known, row.Step());
        leftover = !known;
      }
      if (leftover) std::filesystem::remove(entry.path(), error);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Load(absl::string_view sha256) const {
    auto row = db_.Query("SELECT bytes FROM models WHERE sha256 = ?", sha256);
    LEEWAY_ASSIGN_OR_RETURN(const bool found, row.Step());
    if (!found) return absl::NotFoundError(absl::StrCat(directory_, " holds no model ", sha256));
    std::string bytes;
    if (row.IsNull(0)) {
      std::ifstream file(Path(sha256), std::ios::binary);
      bytes.assign(std::istreambuf_iterator<char>(file), {});
    } else {
      bytes = row.Bytes(0);
    }
    if (Sha256Hex(bytes) == sha256) return bytes;
    return absl::DataLossError(
        absl::StrCat(directory_, ": model ", sha256,
                     " is damaged or missing; restore it from a copy or start a new run"));
  }

  absl::StatusOr<std::vector<std::string>> All() const {
    auto rows = db_.Query("SELECT sha256 FROM models ORDER BY sha256");
    std::vector<std::string> all;
    while (true) {
      LEEWAY_ASSIGN_OR_RETURN(const bool more, rows.Step());
      if (!more) return all;
      all.push_back(rows.Bytes(0));
    }
  }

  absl::StatusOr<std::vector<NamedModel>> Names() const {
    auto rows = db_.Query("SELECT name, sha256 FROM names ORDER BY name");
    std::vector<NamedModel> names;
    while (true) {
      LEEWAY_ASSIGN_OR_RETURN(const bool more, rows.Step());
      if (!more) return names;
      names.push_back({.name = rows.Bytes(0), .sha256 = rows.Bytes(1)});
    }
  }

 private:
  static constexpr size_t kLargestRow = size_t{1} << 20;

  std::string Path(absl::string_view name) const {
    return absl::StrCat(directory_, "/", Store::NamedModelPath(name));
  }

  absl::Status WriteNamed(const NamedModel& named, const ModelBatch& batch) {
    const std::string path = Path(named.name);
    const std::string by_digest = Path(named.sha256);
    if (std::filesystem::exists(by_digest) && LinkFile(by_digest, path, sync_).ok()) {
      return absl::OkStatus();
    }
    for (const ModelPtr& model : batch.models) {
      if (model->sha256 == named.sha256) return WriteFile(path, model->file.view(), sync_);
    }
    LEEWAY_ASSIGN_OR_RETURN(const std::string bytes, Load(named.sha256));
    return WriteFile(path, bytes, sync_);
  }

  const std::string directory_;
  Database& db_;
  bool sync_ = true;
  std::vector<ModelPtr> deferred_;  // not in files yet
  std::vector<std::string> stale_files_;
};

}  // namespace leeway

#endif  // LEEWAY_RECORDS_MODEL_SHELF_H_
