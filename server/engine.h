// Engine: a run, from gathering its clients to its last commit. Run() is the one visible
// round loop; the service's threads call everything else.
// Thread-safe. Its lock comes before those of its parts, and before an order stream's; it
// is not held while resting streams or observers are called, which may ask for it.
#ifndef LEEWAY_SERVER_ENGINE_H_
#define LEEWAY_SERVER_ENGINE_H_

#include <grpcpp/support/slice.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model_layout.h"
#include "common/mutex.h"
#include "common/tally.h"
#include "common/workers.h"
#include "proto/federation.pb.h"
#include "proto/record.pb.h"
#include "proto/run.pb.h"
#include "records/holdings.h"
#include "records/meter.h"
#include "records/presence.h"
#include "server/idle_time.h"
#include "server/journal.h"
#include "server/observers.h"
#include "server/refusal_counts.h"
#include "server/roster.h"
#include "server/round.h"
#include "server/script.h"
#include "server/sessions.h"

namespace leeway {

class Engine {
 public:
  struct Options {
    v1::RunConfig config;         // completed and checked
    std::string state_directory;  // made if it does not exist
    // Gets a line for everything that happens. Optional; outlives the engine.
    Log* log = nullptr;
    // Told of reports, orders and commits. Optional; outlives the engine.
    Meter* meter = nullptr;
    // The model to start from, of a config with model.file, or the file of initial.file.
    ModelPtr initial = nullptr;
    // The model of config.baseline, if there is one.
    ModelPtr baseline = nullptr;
    // Key of the seal of the run's records; empty: none.
    std::string chain_key = "";
    // Epochs of another run, which this one repeats: who enters and leaves before which round.
    // Empty: clients enter when they come.
    std::vector<PlannedEpoch> epochs = {};
  };
  // Opens the state directory; resumes the run in it if there is one (its config
  // must then be the same).
  static absl::StatusOr<std::unique_ptr<Engine>> Open(Options options);
  ~Engine();

  // The round loop: returns when the run is done, failed or stopped. Stopped
  // (Cancelled) leaves a run that the next process resumes.
  absl::Status Run();
  void Stop();

  // ---- for the service: processes and their reports
  // What the welcome of a Join would be.
  absl::StatusOr<v1::Welcome> Describe(const v1::JoinRequest& request) const;
  absl::StatusOr<SessionId> Join(const v1::JoinRequest& request, std::shared_ptr<OrderSink> sink);
  // `process` is how the log names it.
  void Leave(SessionId session, const std::string& process = "");
  // A process was not let in: counted, and in the log and the events.
  void RefuseJoin(const std::string& process, const absl::Status& why) {
    refusals_.Count(why);
    journal_->AddRefusedJoin(process, why);
  }
  // The file of the open round's model. The slice shares the model's memory.
  absl::StatusOr<grpc::Slice> FindModel(const std::string& sha256) const {
    return sessions_.FindModel(sha256);
  }
  // Clients and evaluators of the run; none while it gathers them.
  size_t roster_size() const;
  // May this report come: is it awaited in the open round, or a replay? Checked before
  // any payload is read.
  absl::Status Admit(const v1::ReportHeader& header) const;
  // A complete report: checks and counts it.
  absl::StatusOr<v1::Receipt> Submit(const v1::ReportHeader& header,
                                     absl::Span<const std::byte> payload);
  // After this report its process has nothing more to send in the round: `stream` is
  // called when the next orders have left, or the run is over. False: read on.
  bool Rest(const v1::ReportHeader& header, std::shared_ptr<RestingStream> stream);
  void EndRest(RestingStream* stream) { sessions_.EndRest(stream); }  // it is gone
  // A call or report was refused with this status: it is counted, by its reason.
  void CountRefusal(const absl::Status& status) { refusals_.Count(status); }
  std::map<std::string, uint64_t> Refusals() const { return refusals_.all(); }
  // What reports take up, which the service counts. Streams share it: the last ends when its
  // clock lets go of it, perhaps after the engine.
  const std::shared_ptr<Holdings>& holdings() const { return holdings_; }
  // Longest time that one report may take to come in.
  absl::Duration upload_time() const {
    return absl::Seconds(options_.config.limits().upload_seconds());
  }

  // ---- for those who watch
  v1::Progress progress() const;
  // The next piece of what is new since the given round and event; with where the run
  // stands if it is the last piece.
  absl::StatusOr<v1::Observation> Observe(uint64_t after_round, uint64_t after_event) const;
  // The roster or, while the run gathers, who has joined; at most `most`.
  std::vector<ClientPresence> Clients(size_t most) const;
  // Calls `changed` whenever Observe has news: from any thread; it must neither
  // block nor (un)subscribe. Returns a function that ends this.
  absl::StatusOr<std::function<void()>> Subscribe(std::function<void()> changed) {
    return observers_.Subscribe(std::move(changed));
  }

 private:
  // What all clients' data look like, and so the model.
  struct Data {
    v1::DataSchema schema;
    ModelLayout layout;
  };

  explicit Engine(Options options);
  absl::Status Resume();

  // ---- the round loop, in the order of its steps
  absl::Status GatherClients() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status RunRounds();
  // The next round, after a new epoch if clients have come or gone and the phase allows it.
  absl::StatusOr<RoundPlan> PlanRound() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status OpenRound(const RoundPlan& plan, uint32_t attempt) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status GatherReports() ABSL_LOCKS_EXCLUDED(mu_);
  // What the round has brought; nothing if it got too few reports and may be tried again.
  absl::StatusOr<std::optional<Round::Result>> CloseRound() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status CommitRound(RoundPlan plan, const Round::Result& result) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Finish(const absl::Status& outcome) ABSL_LOCKS_EXCLUDED(mu_);

  void AddRepeat(const RoundPlan& plan);
  void AddClipped(const v1::RoundRecord& record);
  void ShowRound(const RoundPlan& plan, const RoundSpec& spec) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits until the run can start, with whom.
  absl::StatusOr<EpochChange> AwaitFirstEpoch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Decides what the run's data look like; false if somebody's did not, who is refused then.
  absl::StatusOr<bool> AgreeOnData() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Who comes and goes before this round.
  absl::StatusOr<EpochChange> NextEpoch(uint64_t round) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // How many clients of a session wait to enter, and why.
  std::string WaitingText(SessionId session) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  std::string PhaseName(uint32_t phase) const;  // "train", "fixed_point", ...: as in a config
  void LogPhase(uint32_t phase, uint64_t round) const;
  void LogEnd(const absl::Status& outcome) const;
  std::vector<Assignment> ReplaceAbsent(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Of a client whose data do not look like those of the others.
  static absl::Status OddShape(absl::string_view client, const v1::DataSchema& shape,
                               const v1::DataSchema& common);
  absl::Status CheckData(const v1::JoinRequest& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckHeader(const v1::ReportHeader& header) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What a client's failure in a round says about it.
  enum class Fault {
    kOwn,     // it failed at its task, or its report was refused
    kShared,  // a sum of several clients was refused: it is not known whose fault that is
  };
  // A report has been added to the sums, or not.
  void EndReport(const v1::ReportHeader& header, const ReportKey& key, const absl::Status& added)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FailClient(const std::string& client, absl::string_view why, Fault fault)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // At the end of an attempt at a round: who failed in it too often is quarantined, and further
  // attempts do without those whose fault it may be.
  void JudgeFailures() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LogAbsent(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // "a, b and 3 more", of clients by index.
  std::string NamesOf(absl::Span<const ClientIndex> clients) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits a while for somebody to join. An error, with who is missing, after `until`.
  absl::Status AwaitMoreClients(absl::Time until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  const std::shared_ptr<Holdings> holdings_ = std::make_shared<Holdings>();
  Observers observers_;
  Sessions sessions_;
  RefusalCounts refusals_;

  // Touched by the thread in Run() only (and Open before it).
  std::unique_ptr<Journal> journal_;  // its events: by all threads
  std::optional<Script> script_;
  Workers workers_;                  // add up reports and move the model
  Tally memory_;                     // of the last round's sums, for the next
  std::set<ClientIndex> set_aside_;  // in further attempts at the round
  uint32_t repeated_ = 0;            // attempts at the round that did not fail, but set its limit

  mutable Mutex mu_;
  CondVar changed_ ABSL_GUARDED_BY(mu_);
  Roster roster_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Round> round_ ABSL_GUARDED_BY(mu_);  // open, or the last
  std::optional<Data> data_ ABSL_GUARDED_BY(mu_);      // once the run has started
  bool holds_epoch_ ABSL_GUARDED_BY(mu_) = false;      // nobody enters before the next round
  v1::Progress progress_ ABSL_GUARDED_BY(mu_);
  bool phase_logged_ ABSL_GUARDED_BY(mu_) = false;
  bool absent_logged_ ABSL_GUARDED_BY(mu_) = false;  // in the open round
  IdleTime idle_time_ ABSL_GUARDED_BY(mu_);          // of the open round
  IdleTime run_idle_time_ ABSL_GUARDED_BY(mu_);      // of those that this process has committed
  struct Failure {
    std::string client;
    std::string why;
    Fault fault;
  };
  std::vector<Failure> failures_ ABSL_GUARDED_BY(mu_);  // of the open round
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_ENGINE_H_
