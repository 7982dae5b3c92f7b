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
#include "records/model_shelf.h"

namespace leeway {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSchemaVersion = 2;  // 2: checksums form a chain

constexpr char kSchema[] = R"sql(
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS run(key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS clients(position INTEGER PRIMARY KEY, id TEXT UNIQUE,
  examples INTEGER, test_examples INTEGER);
CREATE TABLE IF NOT EXISTS rounds(round INTEGER PRIMARY KEY, kind TEXT, phase INTEGER, loss REAL,
  reports INTEGER, model_sha256 TEXT, seconds REAL, record BLOB, accepted BLOB, checksum INTEGER);
CREATE TABLE IF NOT EXISTS measures(round INTEGER, h INTEGER, average_drift_squared REAL,
  drift_bound REAL, unbiased_drift_squared REAL, PRIMARY KEY(round, h)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events(sequence INTEGER PRIMARY KEY, time REAL, kind TEXT,
  subject TEXT, text TEXT);
CREATE TABLE IF NOT EXISTS models(sha256 TEXT PRIMARY KEY, bytes BLOB);
CREATE TABLE IF NOT EXISTS names(name TEXT PRIMARY KEY, sha256 TEXT) WITHOUT ROWID;
PRAGMA user_version = 2;
COMMIT;
)sql";

constexpr char kPutValue[] = "INSERT OR REPLACE INTO run(key, value) VALUES(?, ?)";

std::string PackIndices(const std::vector<uint32_t>& indices) {
  std::string packed;
  packed.reserve(4 * indices.size());
  for (uint32_t index : indices) {
    for (int shift = 0; shift < 32; shift += 8) {
      packed.push_back(static_cast<char>((index >> shift) & 0xff));
    }
  }
  return packed;
}

std::vector<uint32_t> UnpackIndices(absl::string_view packed) {
  std::vector<uint32_t> indices(packed.size() / 4);
  for (size_t i = 0; i < 4 * indices.size(); ++i) {
    indices[i / 4] |= uint32_t{static_cast<unsigned char>(packed[i])} << (8 * (i % 4));
  }
  return indices;
}

// Of a round, over that of the round before: none can be altered, taken out or
// exchanged unnoticed.
int64_t Checksum(int64_t previous, const std::string& record, const std::string& accepted) {
  return static_cast<int64_t>(
      Xxh3(absl::StrCat(previous, "/", record.size(), "/", record, accepted)));
}

absl::Status LockDirectory(const std::string& directory, int& fd) {
  const std::string path = directory + "/lock";
  fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return FileError("cannot create", path, errno);
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  if (errno != EWOULDBLOCK) return FileError("cannot lock", path, errno);
  return absl::FailedPreconditionError(absl::StrCat("another leeway-server is using ", directory,
                                                    "; stop it or choose another --state"));
}

// The stored checksum of a round; 0 before the first.
absl::StatusOr<int64_t> ChecksumOf(Database& db, uint64_t round) {
  auto row = db.Query("SELECT checksum FROM rounds WHERE round = ?", round);
  LEEWAY_ASSIGN_OR_RETURN(const bool found, row.Step());
  return found ? row.Integer(0) : 0;
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

}  // namespace

Store::Store(std::string directory) : directory_(std::move(directory)) {}

Store::~Store() {
  if (lock_fd_ >= 0 && db_ != nullptr) {
    Flush().IgnoreError();  // the engine has asked before
    if (!pending_.empty()) db_->Transaction([&] { return InsertEvents(); }).IgnoreError();
  }
  db_.reset();
  if (lock_fd_ >= 0) close(lock_fd_);
}

std::string Store::NamedModelPath(absl::string_view name) {
  return absl::StrCat("models/", name, ".safetensors");
}

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const std::string& directory) {
  std::error_code error;
  fs::create_directories(directory + "/models", error);
  if (error) return FileError("cannot create", directory + "/models", error.value());
  std::unique_ptr<Store> store(new Store(directory));
  LEEWAY_RETURN_IF_ERROR(LockDirectory(directory, store->lock_fd_));
  const std::string path = directory + "/run.db";
  LEEWAY_ASSIGN_OR_RETURN(store->db_,
                          Database::Open(path, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  store->models_ = std::make_unique<ModelShelf>(directory, store->db_.get());
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
  LEEWAY_RETURN_IF_ERROR(models_->RemoveLeftovers());
  begun_ = Value("run_id").ok();
  if (!begun_) return absl::OkStatus();
  LEEWAY_ASSIGN_OR_RETURN(const v1::RunConfig config, Config());
  return SetDurability(config.durability());
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
  grouped_ = !sync;
  // NORMAL syncs only when the WAL is copied back: power loss may lose the last
  // rounds, but never leaves a broken file, as OFF could.
  return db_->Script(sync ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL");
}

absl::Status Store::Begin(const std::string& run_id, const v1::RunConfig& config,
                          const v1::DataSchema& schema, const std::vector<StoredClient>& roster,
                          absl::Span<const ModelPtr> models, const ScriptState& script) {
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
    LEEWAY_RETURN_IF_ERROR(db_->Execute(kPutValue, "script", Blob{script.bytes}));
    LEEWAY_RETURN_IF_ERROR(db_->Execute(kPutValue, "state", v1::RunState_Name(v1::RUNNING)));
    LEEWAY_RETURN_IF_ERROR(db_->Execute(kPutValue, "message", ""));
    for (size_t i = 0; i < roster.size(); ++i) {
      LEEWAY_RETURN_IF_ERROR(db_->Execute("INSERT INTO clients VALUES(?, ?, ?, ?)", i, roster[i].id,
                                          roster[i].examples, roster[i].test_examples));
    }
    LEEWAY_RETURN_IF_ERROR(models_->Insert(batch));
    Failpoint("begin.before_commit");
    return InsertEvents();
  };
  LEEWAY_RETURN_IF_ERROR(db_->Transaction(work));
  Failpoint("begin.after_commit");
  pending_.clear();
  begun_ = true;
  return absl::OkStatus();
}

absl::Status Store::Commit(const RoundCommit& round) {
  LEEWAY_RETURN_IF_ERROR(failed_);
  const ModelBatch batch{round.models, round.names};
  Failpoint("commit.before_files");
  LEEWAY_RETURN_IF_ERROR(Check(models_->WriteFiles(batch, grouped_)));
  Failpoint("commit.before_transaction");
  const auto work = [&]() -> absl::Status {
    LEEWAY_RETURN_IF_ERROR(InsertRound(*db_, round));
    Failpoint("commit.in_transaction");
    LEEWAY_RETURN_IF_ERROR(models_->Insert(batch));
    LEEWAY_RETURN_IF_ERROR(db_->Execute(kPutValue, "script", Blob{round.script.bytes}));
    LEEWAY_RETURN_IF_ERROR(db_->Execute(kPutValue, "state", v1::RunState_Name(round.state)));
    LEEWAY_RETURN_IF_ERROR(InsertEvents());
    LEEWAY_RETURN_IF_ERROR(models_->Prune(std::max<size_t>(2, round.models.size())));
    Failpoint("commit.before_commit");
    return absl::OkStatus();
  };
  LEEWAY_RETURN_IF_ERROR(Check(db_->Transaction(work, grouped_)));
  Failpoint("commit.after_commit");
  pending_.clear();
  if (!grouped_) models_->RemoveStaleFiles();
  return absl::OkStatus();
}

absl::Status Store::Flush() {
  LEEWAY_RETURN_IF_ERROR(failed_);
  LEEWAY_RETURN_IF_ERROR(Check(models_->WriteDeferred()));
  LEEWAY_RETURN_IF_ERROR(Check(db_->Commit()));
  models_->RemoveStaleFiles();
  return absl::OkStatus();
}

absl::Status Store::Check(absl::Status status) {
  if (status.ok()) return status;
  db_->Rollback();
  models_->Forget();
  // Rounds that were to be written together are gone: none may follow them.
  if (grouped_) failed_ = status;
  return status;
}

absl::Status Store::AddEvent(const v1::Event& event) {
  pending_.push_back(event);
  return absl::OkStatus();
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
    Failpoint("finish.before_commit");
    return absl::OkStatus();
  };
  LEEWAY_RETURN_IF_ERROR(db_->Transaction(work));
  Failpoint("finish.after_commit");
  pending_.clear();
  return absl::OkStatus();
}

absl::Status Store::InsertEvents() {
  for (const v1::Event& event : pending_) {
    LEEWAY_RETURN_IF_ERROR(db_->Execute("INSERT OR REPLACE INTO events VALUES(?, ?, ?, ?, ?)",
                                        event.sequence(), event.time(), event.kind(),
                                        event.subject(), event.text()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Store::Value(absl::string_view key) const {
  auto row = db_->Query("SELECT value FROM run WHERE key = ?", key);
  absl::StatusOr<bool> found = row.Step();
  // A server that has not come to its schema yet has no table.
  if (absl::IsInternal(found.status())) found = false;
  LEEWAY_RETURN_IF_ERROR(found.status());
  if (!*found) return absl::NotFoundError(absl::StrCat(directory_, ": the run has not begun"));
  return row.Bytes(0);
}

absl::StatusOr<std::string> Store::RunId() const { return Value("run_id"); }
absl::StatusOr<std::string> Store::Message() const { return Value("message"); }

absl::StatusOr<v1::RunConfig> Store::Config() const {
  LEEWAY_ASSIGN_OR_RETURN(const std::string text, Value("config"));
  v1::RunConfig config;
  if (!google::protobuf::TextFormat::ParseFromString(text, &config)) {
    return absl::DataLossError(absl::StrCat(directory_, "/run.db: the stored config is damaged"));
  }
  return config;
}

absl::StatusOr<v1::DataSchema> Store::Schema() const {
  LEEWAY_ASSIGN_OR_RETURN(const std::string bytes, Value("schema"));
  v1::DataSchema schema;
  if (!schema.ParseFromString(bytes)) {
    return absl::DataLossError(absl::StrCat(directory_, "/run.db: the stored schema is damaged"));
  }
  return schema;
}

absl::StatusOr<ScriptState> Store::Script() const {
  LEEWAY_ASSIGN_OR_RETURN(std::string bytes, Value("script"));
  return ScriptState{.bytes = std::move(bytes)};
}

absl::StatusOr<v1::RunState> Store::State() const {
  absl::StatusOr<std::string> name = Value("state");
  if (absl::IsNotFound(name.status())) return v1::GATHERING;
  LEEWAY_RETURN_IF_ERROR(name.status());
  v1::RunState state = v1::RUN_STATE_UNSPECIFIED;
  if (!v1::RunState_Parse(*name, &state)) {
    return absl::DataLossError(absl::StrCat(directory_, "/run.db: unknown state ", *name));
  }
  return state;
}

absl::StatusOr<std::vector<StoredClient>> Store::Roster() const {
  auto rows = db_->Query("SELECT id, examples, test_examples FROM clients ORDER BY position");
  std::vector<StoredClient> roster;
  while (true) {
    LEEWAY_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return roster;
    roster.push_back({.id = rows.Bytes(0),
                      .examples = static_cast<uint64_t>(rows.Integer(1)),
                      .test_examples = static_cast<uint64_t>(rows.Integer(2))});
  }
}

absl::StatusOr<std::vector<v1::RoundRecord>> Store::RoundsAfter(uint64_t round) const {
  auto rows = db_->Query(
      "SELECT round, record, accepted, checksum FROM rounds WHERE round > ? ORDER BY round", round);
  std::vector<v1::RoundRecord> records;
  LEEWAY_ASSIGN_OR_RETURN(int64_t previous, ChecksumOf(*db_, round));
  while (true) {
    LEEWAY_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return records;
    const std::string bytes = rows.Bytes(1);
    v1::RoundRecord record;
    if (Checksum(previous, bytes, rows.Bytes(2)) != rows.Integer(3) ||
        !record.ParseFromString(bytes)) {
      return absl::DataLossError(absl::StrCat(
          directory_, "/run.db: the record of round ", rows.Integer(0),
          " does not match its checksum; restore the file from a copy or start a new run"));
    }
    previous = rows.Integer(3);
    records.push_back(std::move(record));
  }
}

absl::StatusOr<uint64_t> Store::LastRound() const {
  uint64_t last = 0;
  {
    auto row = db_->Query("SELECT coalesce(max(round), 0) FROM rounds");
    LEEWAY_RETURN_IF_ERROR(row.Step().status());
    last = static_cast<uint64_t>(row.Integer(0));
  }
  if (last > 0) LEEWAY_RETURN_IF_ERROR(RoundsAfter(last - 1).status());
  return last;
}

absl::StatusOr<std::vector<v1::Event>> Store::EventsAfter(uint64_t sequence) const {
  auto rows = db_->Query(
      "SELECT sequence, time, kind, subject, text FROM events WHERE sequence > ? ORDER BY sequence",
      sequence);
  std::vector<v1::Event> events;
  while (true) {
    LEEWAY_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) break;
    v1::Event& event = events.emplace_back();
    event.set_sequence(static_cast<uint64_t>(rows.Integer(0)));
    event.set_time(rows.Real(1));
    event.set_kind(rows.Bytes(2));
    event.set_subject(rows.Bytes(3));
    event.set_text(rows.Bytes(4));
  }
  std::copy_if(pending_.begin(), pending_.end(), std::back_inserter(events),
               [&](const v1::Event& event) { return event.sequence() > sequence; });
  return events;
}

absl::StatusOr<std::vector<uint32_t>> Store::Accepted(uint64_t round) const {
  auto row = db_->Query("SELECT accepted FROM rounds WHERE round = ?", round);
  LEEWAY_ASSIGN_OR_RETURN(const bool found, row.Step());
  if (!found) {
    return absl::NotFoundError(absl::StrCat(directory_, "/run.db has no round ", round));
  }
  return UnpackIndices(row.Bytes(0));
}

absl::StatusOr<std::string> Store::LoadModel(absl::string_view sha256) const {
  return models_->Load(sha256);
}

absl::StatusOr<std::vector<NamedModel>> Store::NamedModels() const { return models_->Names(); }

}  // namespace leeway
