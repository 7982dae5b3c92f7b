#include "records/store.h"

#include <fcntl.h>
#include <google/protobuf/text_format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/digest.h"
#include "common/durable_file.h"
#include "common/failpoint.h"
#include "common/status.h"
#include "records/database.h"
#include "records/events.h"
#include "records/head_file.h"
#include "records/model_shelf.h"
#include "records/round_row.h"
#include "records/seal.h"
#include "records/state_file.h"

namespace leeway {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSchemaVersion = 5;  // 4: sealed; 5: epochs

constexpr char kSchema[] = R"sql(
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS run(key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS clients(position INTEGER PRIMARY KEY, id TEXT UNIQUE,
  examples INTEGER, test_examples INTEGER, digest INTEGER);
CREATE TABLE IF NOT EXISTS epochs(number INTEGER PRIMARY KEY, first_round INTEGER,
  population INTEGER, epoch BLOB);
CREATE TABLE IF NOT EXISTS rounds(round INTEGER PRIMARY KEY, kind TEXT, phase INTEGER, loss REAL,
  reports INTEGER, model_sha256 TEXT, seconds REAL, record BLOB, accepted BLOB, checksum INTEGER);
CREATE TABLE IF NOT EXISTS measures(round INTEGER, h INTEGER, average_drift_squared REAL,
  drift_bound REAL, unbiased_drift_squared REAL, PRIMARY KEY(round, h)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events(sequence INTEGER PRIMARY KEY, time REAL, kind TEXT,
  subject TEXT, text TEXT);
CREATE TABLE IF NOT EXISTS models(sha256 TEXT PRIMARY KEY, bytes BLOB);
CREATE TABLE IF NOT EXISTS names(name TEXT PRIMARY KEY, sha256 TEXT) WITHOUT ROWID;
PRAGMA user_version = 5;
COMMIT;
)sql";

constexpr char kPutValue[] = "INSERT OR REPLACE INTO run(key, value) VALUES(?, ?)";

absl::Status LockDirectory(const std::string& directory, int& fd) {
  const std::string path = directory + "/lock";
  fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return FileError("cannot create", path, errno);
  // A reader that asks InUse holds the lock for a moment.
  for (int attempt = 0; attempt < 20; ++attempt) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
    if (errno != EWOULDBLOCK) return FileError("cannot lock", path, errno);
    usleep(5000);
  }
  return absl::FailedPreconditionError(absl::StrCat("another leeway-server is using ", directory,
                                                    "; stop it or choose another --state"));
}

absl::Status InsertRound(Database& db, const RoundCommit& round) {
  const v1::RoundRecord& record = round.record;
  const std::string bytes = record.SerializeAsString();
  const std::string accepted = PackIndices(round.accepted);
  LEEWAY_ASSIGN_OR_RETURN(const int64_t previous, ChecksumOf(db, record.round() - 1));
  LEEWAY_RETURN_IF_ERROR(db.Execute("INSERT INTO rounds VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                                    record.round(), v1::RoundKind_Name(record.kind()),
                                    record.phase(), record.loss(), record.reports(),
                                    record.model_sha256(), record.seconds(), Blob{bytes},
                                    Blob{accepted}, Checksum(previous, bytes, accepted)));
  for (const v1::DriftAtSteps& drift : record.drift()) {
    LEEWAY_RETURN_IF_ERROR(db.Execute("INSERT INTO measures VALUES(?, ?, ?, ?, ?)", record.round(),
                                      drift.h(), drift.average_drift_squared(), drift.drift_bound(),
                                      drift.unbiased_drift_squared()));
  }
  return absl::OkStatus();
}

v1::Epoch FirstEpoch(const std::vector<StoredClient>& roster) {
  v1::Epoch epoch;
  epoch.set_number(1);
  epoch.set_first_round(1);
  epoch.set_roster(static_cast<uint32_t>(roster.size()));
  epoch.set_population(static_cast<uint32_t>(std::count_if(
      roster.begin(), roster.end(), [](const StoredClient& c) { return c.examples > 0; })));
  return epoch;
}

}  // namespace

Store::Store(std::string directory) : directory_(std::move(directory)) {}

Store::~Store() {
  if (lock_fd_ >= 0 && db_ != nullptr) {
    Flush().IgnoreError();  // the engine has asked before
    if (begun_ && !pending_.empty()) {
      const auto work = [&]() -> absl::Status {
        LEEWAY_RETURN_IF_ERROR(InsertEvents());
        return seal_->Write();
      };
      db_->Transaction(work).IgnoreError();
    }
  }
  seal_.reset();
  db_.reset();
  if (lock_fd_ >= 0) close(lock_fd_);
}

std::string Store::NamedModelPath(absl::string_view name) {
  return absl::StrCat("models/", name, ".safetensors");
}

bool Store::InUse(const std::string& directory) {
  const std::string path = directory + "/lock";
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno != ENOENT;
  const bool free = flock(fd, LOCK_SH | LOCK_NB) == 0;  // closing gives it back
  const bool used = !free && errno == EWOULDBLOCK;
  close(fd);
  return used;
}

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const std::string& directory,
                                                   const std::string& chain_key) {
  std::error_code error;
  fs::create_directories(directory + "/models", error);
  if (error) return FileError("cannot create", directory + "/models", error.value());
  std::unique_ptr<Store> store(new Store(directory));
  LEEWAY_RETURN_IF_ERROR(LockDirectory(directory, store->lock_fd_));
  const std::string path = directory + "/run.db";
  LEEWAY_ASSIGN_OR_RETURN(store->db_,
                          Database::Open(path, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  store->models_ = std::make_unique<ModelShelf>(directory, store->db_.get());
  store->state_file_ = std::make_unique<StateFile>(directory);
  store->seal_ = std::make_unique<Seal>(store->db_.get(), chain_key);
  store->head_ = std::make_unique<HeadFile>(directory);
  LEEWAY_RETURN_IF_ERROR(store->Prepare());
  return store;
}

absl::Status Store::Prepare() {
  // The journal mode is a property of the file; it must be set before the schema.
  LEEWAY_RETURN_IF_ERROR(db_->Script("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"));
  int64_t version = 0;
  {
    auto row = db_->Query("PRAGMA user_version");
    LEEWAY_RETURN_IF_ERROR(row.Step().status());
    version = row.Integer(0);
  }
  if (version > kSchemaVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory_, "/run.db was written by a newer leeway (format ", version,
                     "); use that version or another --state"));
  }
  if (version > 0 && version < kSchemaVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory_, "/run.db was written by an older leeway (format ", version,
                     "); use that version or another --state"));
  }
  if (version == 0) LEEWAY_RETURN_IF_ERROR(db_->Script(kSchema));
  LEEWAY_RETURN_IF_ERROR(SyncDirectory(directory_));
  begun_ = Value("run_id").ok();
  // Before anything is removed or written: what is damaged stays as it was found.
  LEEWAY_RETURN_IF_ERROR(CheckHead());
  if (begun_) LEEWAY_RETURN_IF_ERROR(Annotate(seal_->Check(), directory_ + "/run.db"));
  LEEWAY_RETURN_IF_ERROR(models_->RemoveLeftovers());
  if (!begun_) return absl::OkStatus();
  LEEWAY_ASSIGN_OR_RETURN(const v1::ScriptState script, SavedScript());
  state_file_->RemoveLeftovers(script);
  LEEWAY_ASSIGN_OR_RETURN(const v1::RunConfig config, Config());
  LEEWAY_RETURN_IF_ERROR(SetDurability(config.durability()));
  return WriteHead(/*sync=*/true);
}

absl::StatusOr<std::unique_ptr<Store>> Store::OpenReadOnly(const std::string& directory) {
  const std::string path = directory + "/run.db";
  std::error_code error;
  if (!fs::exists(path, error)) {
    return absl::NotFoundError(absl::StrCat(directory, " holds no run (there is no run.db in it)"));
  }
  std::unique_ptr<Store> store(new Store(directory));
  LEEWAY_ASSIGN_OR_RETURN(store->db_, Database::Open(path, path, SQLITE_OPEN_READONLY));
  absl::StatusOr<std::string> run_id = store->Value("run_id");
  // A reader of a WAL needs its index file, which it cannot make in a directory
  // that it may not write to. Without a WAL the file does not change: say so.
  if (absl::IsPermissionDenied(run_id.status()) && !fs::exists(path + "-wal", error)) {
    LEEWAY_ASSIGN_OR_RETURN(store->db_,
                            Database::Open(path, absl::StrCat("file:", path, "?immutable=1"),
                                           SQLITE_OPEN_READONLY | SQLITE_OPEN_URI));
    run_id = store->Value("run_id");
  }
  store->models_ = std::make_unique<ModelShelf>(directory, store->db_.get());
  store->state_file_ = std::make_unique<StateFile>(directory);
  store->head_ = std::make_unique<HeadFile>(directory);
  store->begun_ = run_id.ok();
  if (absl::IsDataLoss(run_id.status()) || absl::IsPermissionDenied(run_id.status())) {
    return run_id.status();
  }
  return store;
}

bool Store::begun() const { return begun_; }

absl::Status Store::SetDurability(v1::Durability durability) {
  const bool sync = durability != v1::RELAXED;
  models_->set_sync(sync);
  state_file_->set_sync(sync);
  grouped_ = !sync;
  // NORMAL syncs only when the WAL is copied back: power loss may lose the last
  // rounds, but never leaves a broken file, as OFF could.
  return db_->Script(sync ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL");
}

absl::Status Store::Begin(const std::string& run_id, const v1::RunConfig& config,
                          const v1::DataSchema& schema, const std::vector<StoredClient>& roster,
                          absl::Span<const ModelPtr> models, v1::ScriptState script) {
  if (begun_) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory_, " already holds a run; choose another --state"));
  }
  LEEWAY_RETURN_IF_ERROR(SetDurability(config.durability()));
  std::vector<NamedModel> names;
  if (!models.empty()) names.push_back({.name = "initial", .sha256 = models[0]->sha256});
  const ModelBatch batch{models, names};
  LEEWAY_RETURN_IF_ERROR(models_->WriteFiles(batch));
  std::string text;  // not binary, so that people can read it in sqlite3
  google::protobuf::TextFormat::PrintToString(config, &text);
  const std::string schema_bytes = schema.SerializeAsString();
  const auto work = [&]() -> absl::Status {
    LEEWAY_RETURN_IF_ERROR(db_->Execute(kPutValue, "run_id", run_id));
    LEEWAY_RETURN_IF_ERROR(db_->Execute(kPutValue, "config", text));
    LEEWAY_RETURN_IF_ERROR(db_->Execute(kPutValue, "schema", Blob{schema_bytes}));
    LEEWAY_RETURN_IF_ERROR(PutState(script, v1::Standings()));
    LEEWAY_RETURN_IF_ERROR(db_->Execute(kPutValue, "state", v1::RunState_Name(v1::RUNNING)));
    LEEWAY_RETURN_IF_ERROR(db_->Execute(kPutValue, "message", ""));
    LEEWAY_RETURN_IF_ERROR(InsertEpoch(FirstEpoch(roster), roster));
    LEEWAY_RETURN_IF_ERROR(models_->Insert(batch));
    LEEWAY_RETURN_IF_ERROR(InsertEvents());
    LEEWAY_RETURN_IF_ERROR(seal_->Write());
    Failpoint("begin.before_commit");
    return absl::OkStatus();
  };
  LEEWAY_RETURN_IF_ERROR(Check(db_->Transaction(work)));
  Failpoint("begin.after_commit");
  pending_.clear();
  begun_ = true;
  return WriteHead(/*sync=*/true);
}

absl::Status Store::InsertEpoch(const v1::Epoch& epoch, absl::Span<const StoredClient> entered) {
  for (size_t i = 0; i < entered.size(); ++i) {
    const StoredClient& client = entered[i];
    LEEWAY_RETURN_IF_ERROR(db_->Execute("INSERT INTO clients VALUES(?, ?, ?, ?, ?)",
                                        epoch.roster() - entered.size() + i, client.id,
                                        client.examples, client.test_examples, client.digest));
  }
  const std::string bytes = epoch.SerializeAsString();
  return db_->Execute("INSERT INTO epochs VALUES(?, ?, ?, ?)", epoch.number(), epoch.first_round(),
                      epoch.population(), Blob{bytes});
}

absl::Status Store::AddEpoch(const v1::Epoch& epoch, const std::vector<StoredClient>& entered) {
  LEEWAY_RETURN_IF_ERROR(failed_);
  Failpoint("epoch.before_transaction");
  const auto work = [&]() -> absl::Status {
    LEEWAY_RETURN_IF_ERROR(InsertEpoch(epoch, entered));
    LEEWAY_RETURN_IF_ERROR(InsertEvents());
    if (!grouped_) LEEWAY_RETURN_IF_ERROR(seal_->Write());
    Failpoint("epoch.before_commit");
    return absl::OkStatus();
  };
  LEEWAY_RETURN_IF_ERROR(Check(db_->Transaction(work, grouped_)));
  Failpoint("epoch.after_commit");
  pending_.clear();
  return absl::OkStatus();
}

absl::Status Store::ChangeConfig(const v1::RunConfig& config) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(config, &text);
  const auto work = [&]() -> absl::Status {
    LEEWAY_RETURN_IF_ERROR(db_->Execute(kPutValue, "config", text));
    return seal_->Write();
  };
  return Check(db_->Transaction(work));
}

absl::Status Store::Commit(RoundCommit round) {
  LEEWAY_RETURN_IF_ERROR(failed_);
  const ModelBatch batch{round.models, round.names};
  Failpoint("commit.before_files");
  LEEWAY_RETURN_IF_ERROR(Check(models_->WriteFiles(batch, grouped_)));
  state_file_->Take(round.script);
  if (!grouped_) LEEWAY_RETURN_IF_ERROR(Check(state_file_->Write()));
  Failpoint("commit.before_transaction");
  const auto work = [&]() -> absl::Status {
    LEEWAY_RETURN_IF_ERROR(InsertRound(*db_, round));
    Failpoint("commit.in_transaction");
    LEEWAY_RETURN_IF_ERROR(models_->Insert(batch));
    LEEWAY_RETURN_IF_ERROR(PutState(round.script, round.standings));
    LEEWAY_RETURN_IF_ERROR(db_->Execute(kPutValue, "state", v1::RunState_Name(round.state)));
    LEEWAY_RETURN_IF_ERROR(InsertEvents());
    LEEWAY_RETURN_IF_ERROR(models_->Prune(std::max<size_t>(2, round.models.size())));
    if (!grouped_) LEEWAY_RETURN_IF_ERROR(seal_->Write());
    Failpoint("commit.before_commit");
    return absl::OkStatus();
  };
  LEEWAY_RETURN_IF_ERROR(Check(db_->Transaction(work, grouped_)));
  Failpoint("commit.after_commit");
  pending_.clear();
  if (grouped_) return absl::OkStatus();
  models_->RemoveStaleFiles();
  state_file_->RemoveStale();
  return WriteHead(/*sync=*/false);
}

absl::Status Store::PutState(const v1::ScriptState& script, const v1::Standings& standings) {
  const std::string script_bytes = script.SerializeAsString();
  const std::string standing_bytes = standings.SerializeAsString();
  LEEWAY_RETURN_IF_ERROR(db_->Execute(kPutValue, "script", Blob{script_bytes}));
  if (standings_ == standing_bytes) return absl::OkStatus();
  LEEWAY_RETURN_IF_ERROR(db_->Execute(kPutValue, "standings", Blob{standing_bytes}));
  standings_ = standing_bytes;
  return absl::OkStatus();
}

absl::Status Store::Flush() {
  LEEWAY_RETURN_IF_ERROR(failed_);
  LEEWAY_RETURN_IF_ERROR(Check(models_->WriteDeferred()));
  LEEWAY_RETURN_IF_ERROR(Check(state_file_->Write()));
  if (!db_->open()) return absl::OkStatus();
  LEEWAY_RETURN_IF_ERROR(Check(seal_->Write()));
  LEEWAY_RETURN_IF_ERROR(Check(db_->Commit()));
  models_->RemoveStaleFiles();
  state_file_->RemoveStale();
  return WriteHead(/*sync=*/false);
}

absl::Status Store::WriteHead(bool sync) {
  uint64_t last = 0;
  int64_t checksum = 0;
  {
    auto row = db_->Query("SELECT round, checksum FROM rounds ORDER BY round DESC LIMIT 1");
    LEEWAY_ASSIGN_OR_RETURN(const bool found, row.Step());
    if (found) last = static_cast<uint64_t>(row.Integer(0));
    if (found) checksum = row.Integer(1);
  }
  return head_->Write(last, checksum, sync);
}

absl::Status Store::Check(absl::Status status) {
  if (status.ok()) return status;
  db_->Rollback();
  models_->Forget();
  state_file_->Forget();
  seal_->Forget();
  standings_.reset();
  // Rounds that were to be written together are gone: none may follow them.
  if (grouped_) failed_ = status;
  return status;
}

absl::Status Store::Finish(v1::RunState state, absl::string_view message,
                           const std::vector<NamedModel>& names) {
  LEEWAY_RETURN_IF_ERROR(Flush());
  const ModelBatch batch{{}, names};
  LEEWAY_RETURN_IF_ERROR(models_->WriteFiles(batch));
  const auto work = [&]() -> absl::Status {
    LEEWAY_RETURN_IF_ERROR(models_->Insert(batch));
    LEEWAY_RETURN_IF_ERROR(db_->Execute(kPutValue, "state", v1::RunState_Name(state)));
    LEEWAY_RETURN_IF_ERROR(db_->Execute(kPutValue, "message", message));
    LEEWAY_RETURN_IF_ERROR(InsertEvents());
    LEEWAY_RETURN_IF_ERROR(seal_->Write());
    Failpoint("finish.before_commit");
    return absl::OkStatus();
  };
  LEEWAY_RETURN_IF_ERROR(Check(db_->Transaction(work)));
  Failpoint("finish.after_commit");
  pending_.clear();
  return absl::OkStatus();
}

absl::Status Store::InsertEvents() {
  for (const v1::Event& event : pending_) {
    LEEWAY_RETURN_IF_ERROR(db_->Execute("INSERT INTO events VALUES(?, ?, ?, ?, ?)",
                                        event.sequence(), event.time(), EventKindName(event.kind()),
                                        event.subject(), event.text()));
  }
  return absl::OkStatus();
}

}  // namespace leeway
