// The run store: everything a run leaves behind, and all that a server needs to
// resume it. One directory: run.db (SQLite, WAL), models/*.safetensors and, while an
// optimizer has a large state, optimizer/*.f64. A round is one transaction; what it needs
// is durable before it commits.
// Not thread-safe; one writer. Readers open their own, read-only.
#ifndef LEEWAY_RECORDS_STORE_H_
#define LEEWAY_RECORDS_STORE_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model.h"
#include "proto/federation.pb.h"
#include "proto/record.pb.h"
#include "proto/run.pb.h"

namespace leeway {

class Database;    // records/database.h
class HeadFile;    // records/head_file.h
class ModelShelf;  // records/model_shelf.h
class Seal;        // records/seal.h
class StateFile;   // records/state_file.h

// A client as the roster knows it. Its position in the roster is its index.
struct StoredClient {
  std::string id;
  uint64_t examples = 0;
  uint64_t test_examples = 0;
  uint64_t digest = 0;  // of its data; 0: not known
};

// Files that outlive the round loop and that people open: "initial",
// "optimum", "final". `show` prints their paths.
struct NamedModel {
  std::string name;
  std::string sha256;
};

// All that one round changes, in one transaction.
struct RoundCommit {
  v1::RoundRecord record;
  std::vector<uint32_t> accepted;  // roster indices whose reports counted
  std::vector<ModelPtr> models;    // to keep, may be empty
  std::vector<NamedModel> names;   // names to set
  v1::ScriptState script;          // state after the round
  v1::Standings standings;         // of the clients, after the round
  v1::RunState state = v1::RUNNING;
};

class Store {
 public:
  static constexpr size_t kAll = std::numeric_limits<size_t>::max();

  // Opens or creates the store for writing; locks it against a second server
  // (FailedPrecondition names the remedy). With durability RELAXED syncs are left
  // to the operating system, and rounds are written together. DataLoss if a run in it is
  // not as it was written. The key, if any, is that of its seal.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& directory,
                                                     const std::string& chain_key = "");
  // Has a server opened it for writing? Where its lock cannot be read: yes.
  static bool InUse(const std::string& directory);
  // Opens an existing store for reading. NotFound if there is none.
  static absl::StatusOr<std::unique_ptr<Store>> OpenReadOnly(const std::string& directory);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // True if Begin was called on this store before (by this or an earlier process).
  bool begun() const;

  // Starts a run: config, run id, the roster and its first epoch, in one transaction. The
  // first of `models` gets the name "initial".
  absl::Status Begin(const std::string& run_id, const v1::RunConfig& config,
                     const v1::DataSchema& schema, const std::vector<StoredClient>& roster,
                     absl::Span<const ModelPtr> models, v1::ScriptState script);
  // The run goes on with another configuration: of what may change, the caller decides.
  absl::Status ChangeConfig(const v1::RunConfig& config);
  // Who is present has changed: an epoch, and those who are new on the roster. In a transaction
  // of its own or, with durability RELAXED, with the rounds before it.
  absl::Status AddEpoch(const v1::Epoch& epoch, const std::vector<StoredClient>& entered);
  // Of models without a name only the last two (or as many as this round has)
  // are kept: name what must stay. With durability RELAXED the round is in the files
  // after the next Flush.
  absl::Status Commit(RoundCommit round);
  // Hands all rounds so far to the operating system. With durability RELAXED, once this or
  // Commit has failed both say so for ever, and the files stay as the last Flush left them.
  absl::Status Flush();
  // Durable with the next commit at the latest, or the Flush after it.
  void AddEvent(v1::Event event) { pending_.push_back(std::move(event)); }
  // Ends the run: DONE or FAILED with its message.
  absl::Status Finish(v1::RunState state, absl::string_view message,
                      const std::vector<NamedModel>& names);

  // DataLoss, with the table or file, if what is stored is not what was written: the seal, and
  // the head, which names the last round. FailedPrecondition if the key is another.
  absl::Status CheckWhole(const std::string& chain_key = "") const;

  absl::StatusOr<std::string> RunId() const;
  absl::StatusOr<v1::RunConfig> Config() const;
  absl::StatusOr<v1::DataSchema> Schema() const;
  // Of all epochs.
  absl::StatusOr<std::vector<StoredClient>> Roster() const;
  absl::StatusOr<std::vector<v1::Epoch>> Epochs() const;
  // DataLoss if the optimizer's state is not as it was saved.
  absl::StatusOr<v1::ScriptState> Script() const;
  absl::StatusOr<v1::Standings> Standings() const;
  absl::StatusOr<v1::RunState> State() const;
  absl::StatusOr<std::string> Message() const;
  // Records of rounds after `round`, in order: all, or the first that together have about
  // so many bytes.
  absl::StatusOr<std::vector<v1::RoundRecord>> RoundsAfter(uint64_t round,
                                                           size_t most_bytes = kAll) const;
  // Number of the last round, 0 if there is none. DataLoss if its record is damaged.
  absl::StatusOr<uint64_t> LastRound() const;
  absl::StatusOr<std::vector<v1::Event>> EventsAfter(uint64_t sequence,
                                                     size_t most_bytes = kAll) const;
  // Number of the last event, 0 if there is none.
  absl::StatusOr<uint64_t> LastEvent() const;
  // Roster indices accepted in a round.
  absl::StatusOr<std::vector<uint32_t>> Accepted(uint64_t round) const;
  // All models in the store, also those without a name.
  absl::StatusOr<std::vector<std::string>> Models() const;
  // The bytes of a model file; DataLoss if they do not match their name.
  absl::StatusOr<std::string> LoadModel(absl::string_view sha256) const;
  absl::StatusOr<std::vector<NamedModel>> NamedModels() const;
  // Path of the .safetensors file of a named model, relative to the directory;
  // written (synced, renamed) when the name is set.
  static std::string NamedModelPath(absl::string_view name);  // "models/<name>.safetensors"

 private:
  explicit Store(std::string directory);
  absl::Status Prepare();  // schema, pragmas, leftovers of a crash
  absl::Status SetDurability(v1::Durability durability);
  absl::Status InsertEvents();
  absl::Status InsertEpoch(const v1::Epoch& epoch, absl::Span<const StoredClient> entered);
  // DataLoss if rounds that the head names are gone.
  absl::Status CheckHead() const;
  absl::Status WriteHead(bool sync);
  // Of a step of Commit or Flush: takes back what is not in the files yet if it failed.
  absl::Status Check(absl::Status status);
  absl::Status PutState(const v1::ScriptState& script, const v1::Standings& standings);
  absl::StatusOr<std::string> Value(absl::string_view key) const;
  absl::StatusOr<v1::ScriptState> SavedScript() const;  // without what is in a file

  const std::string directory_;
  std::unique_ptr<Database> db_;
  std::unique_ptr<ModelShelf> models_;
  std::unique_ptr<StateFile> state_file_;
  std::unique_ptr<Seal> seal_;
  std::unique_ptr<HeadFile> head_;
  int lock_fd_ = -1;
  bool begun_ = false;
  bool grouped_ = false;  // several rounds share a transaction
  absl::Status failed_;
  std::optional<std::string> standings_;  // as written last; not known: none
  std::vector<v1::Event> pending_;        // events that wait for the next transaction
};

}  // namespace leeway

#endif  // LEEWAY_RECORDS_STORE_H_
