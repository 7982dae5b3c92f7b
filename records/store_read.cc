// The parts of Store that read.
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "records/database.h"
#include "records/events.h"
#include "records/head_file.h"
#include "records/model_shelf.h"
#include "records/round_row.h"
#include "records/seal.h"
#include "records/state_file.h"
#include "records/store.h"

namespace leeway {

absl::StatusOr<std::string> Store::Value(absl::string_view key) const {
  auto row = db_->Query("SELECT value FROM run WHERE key = ?", key);
  absl::StatusOr<bool> found = row.Step();
  // A server that has not come to its schema yet has no table.
  if (absl::IsInternal(found.status())) found = false;
  LEEWAY_RETURN_IF_ERROR(found.status());
  if (!*found) return absl::NotFoundError(absl::StrCat(directory_, ": the run has not begun"));
  return row.Bytes(0);
}

absl::Status Store::CheckWhole(const std::string& chain_key) const {
  if (!head_->Read()) {
    return absl::DataLossError(
        absl::StrCat(head_->path(),
                     " is missing or damaged: whether the last rounds are all there is not known"));
  }
  LEEWAY_RETURN_IF_ERROR(CheckHead());
  if (!begun_) return absl::NotFoundError(absl::StrCat(directory_, ": the run has not begun"));
  Seal seal(db_.get(), chain_key);
  return Annotate(db_->Snapshot([&] { return seal.Check(); }), directory_ + "/run.db");
}

absl::Status Store::CheckHead() const {
  const std::optional<Head> head = head_->Read();
  if (!head) return absl::OkStatus();
  uint64_t last = 0;
  if (begun_) {
    auto row = db_->Query("SELECT coalesce(max(round), 0) FROM rounds");
    LEEWAY_RETURN_IF_ERROR(row.Step().status());
    last = static_cast<uint64_t>(row.Integer(0));
    if (last >= head->round) {
      LEEWAY_ASSIGN_OR_RETURN(const int64_t checksum, ChecksumOf(*db_, head->round));
      if (checksum == head->checksum) return absl::OkStatus();
      return absl::DataLossError(absl::StrCat(
          directory_, "/run.db: round ", head->round, " is not the one that ", head_->path(),
          " names: the files are of different runs; restore the directory from a copy"));
    }
    // Power loss may take rounds that the operating system had not written yet.
    LEEWAY_ASSIGN_OR_RETURN(const v1::RunConfig config, Config());
    if (config.durability() == v1::RELAXED && head->boot != HeadFile::BootId()) {
      return absl::OkStatus();
    }
  }
  return absl::DataLossError(absl::StrCat(
      directory_, "/run.db ends at round ", last, ", but round ", head->round,
      " was committed: its write-ahead log run.db-wal was deleted or cut. Restore the directory "
      "from a copy, or remove ",
      head_->path(), " to go on from round ", last));
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

absl::StatusOr<v1::ScriptState> Store::SavedScript() const {
  LEEWAY_ASSIGN_OR_RETURN(const std::string bytes, Value("script"));
  v1::ScriptState script;
  if (!script.ParseFromString(bytes)) {
    return absl::DataLossError(
        absl::StrCat(directory_, "/run.db: the saved state of the run cannot be read"));
  }
  return script;
}

absl::StatusOr<v1::ScriptState> Store::Script() const {
  LEEWAY_ASSIGN_OR_RETURN(v1::ScriptState script, SavedScript());
  LEEWAY_RETURN_IF_ERROR(state_file_->Load(script));
  return script;
}

absl::StatusOr<v1::Standings> Store::Standings() const {
  v1::Standings standings;
  const absl::StatusOr<std::string> bytes = Value("standings");
  if (absl::IsNotFound(bytes.status())) return standings;  // an older run, to be read only
  LEEWAY_RETURN_IF_ERROR(bytes.status());
  if (!standings.ParseFromString(*bytes)) {
    return absl::DataLossError(
        absl::StrCat(directory_, "/run.db: the clients' standings cannot be read"));
  }
  return standings;
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
  auto rows = db_->Query("SELECT * FROM clients ORDER BY position");
  std::vector<StoredClient> roster;
  while (true) {
    LEEWAY_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return roster;
    const bool digests = rows.columns() > 4;  // an older run has none
    roster.push_back({.id = rows.Bytes(1),
                      .examples = static_cast<uint64_t>(rows.Integer(2)),
                      .test_examples = static_cast<uint64_t>(rows.Integer(3)),
                      .digest = digests ? static_cast<uint64_t>(rows.Integer(4)) : 0});
  }
}

absl::StatusOr<std::vector<v1::Epoch>> Store::Epochs() const {
  auto rows = db_->Query("SELECT number, epoch FROM epochs ORDER BY number");
  std::vector<v1::Epoch> epochs;
  while (true) {
    const absl::StatusOr<bool> more = rows.Step();
    if (absl::IsInternal(more.status())) return epochs;  // an older run has no such table
    LEEWAY_RETURN_IF_ERROR(more.status());
    if (!*more) return epochs;
    if (!epochs.emplace_back().ParseFromString(rows.Bytes(1))) {
      return absl::DataLossError(
          absl::StrCat(directory_, "/run.db: epoch ", rows.Integer(0), " cannot be read"));
    }
  }
}

absl::StatusOr<std::vector<v1::RoundRecord>> Store::RoundsAfter(uint64_t round,
                                                                size_t most_bytes) const {
  auto rows = db_->Query(
      "SELECT round, record, accepted, checksum FROM rounds WHERE round > ? ORDER BY round", round);
  std::vector<v1::RoundRecord> records;
  LEEWAY_ASSIGN_OR_RETURN(int64_t previous, ChecksumOf(*db_, round));
  size_t read = 0;
  while (true) {
    LEEWAY_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return records;
    const std::string bytes = rows.Bytes(1);
    read += bytes.size();
    if (read > most_bytes && !records.empty()) return records;
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

absl::StatusOr<std::vector<v1::Event>> Store::EventsAfter(uint64_t sequence,
                                                          size_t most_bytes) const {
  auto rows = db_->Query(
      "SELECT sequence, time, kind, subject, text FROM events WHERE sequence > ? ORDER BY sequence",
      sequence);
  std::vector<v1::Event> events;
  size_t read = 0;
  while (true) {
    LEEWAY_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) break;
    v1::Event event;
    event.set_sequence(static_cast<uint64_t>(rows.Integer(0)));
    event.set_time(rows.Real(1));
    event.set_kind(ParseEventKind(rows.Bytes(2)));
    event.set_subject(rows.Bytes(3));
    event.set_text(rows.Bytes(4));
    read += event.ByteSizeLong();
    if (read > most_bytes && !events.empty()) return events;
    events.push_back(std::move(event));
  }
  std::copy_if(pending_.begin(), pending_.end(), std::back_inserter(events),
               [&](const v1::Event& event) { return event.sequence() > sequence; });
  return events;
}

absl::StatusOr<uint64_t> Store::LastEvent() const {
  auto row = db_->Query("SELECT coalesce(max(sequence), 0) FROM events");
  LEEWAY_RETURN_IF_ERROR(row.Step().status());
  return static_cast<uint64_t>(row.Integer(0));
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

absl::StatusOr<std::vector<std::string>> Store::Models() const { return models_->All(); }

absl::StatusOr<std::vector<NamedModel>> Store::NamedModels() const { return models_->Names(); }

}  // namespace leeway
