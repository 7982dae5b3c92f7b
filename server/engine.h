// Engine: a run, from gathering its clients to its last commit. Run() is the one
// visible round loop; the service's threads call everything else.
// Thread-safe. Lock order: mu_ before fold_mu_, for a moment when a round opens.
#ifndef LEEWAY_SERVER_ENGINE_H_
#define LEEWAY_SERVER_ENGINE_H_

#include <grpcpp/support/slice.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model_layout.h"
#include "common/mutex.h"
#include "common/sums.h"
#include "common/tally.h"
#include "common/workers.h"
#include "proto/federation.pb.h"
#include "proto/record.pb.h"
#include "proto/run.pb.h"
#include "records/meter.h"
#include "records/presence.h"
#include "records/store.h"
#include "server/coordinator.h"
#include "server/script.h"

namespace leeway {

// Kind of the event that says that a client is out for the rest of the run.
inline constexpr char kQuarantined[] = "quarantined";

// A session's order stream, as the engine sees it. Never blocks.
class OrderSink {
 public:
  virtual ~OrderSink() = default;
  // Sends an order whose common part is already serialized (shared by all
  // sessions of the round), completed by this session's own fields.
  virtual void Send(const grpc::Slice& common, const v1::Order& own) = 0;
  // Ends the stream after what was sent.
  virtual void Close(const absl::Status& status) = 0;
};

// A stream of reports that nothing is expected on before the next orders.
class RestingStream {
 public:
  virtual ~RestingStream() = default;
  virtual void OnOrders() = 0;  // never blocks
};

class Engine {
 public:
  struct Options {
    v1::RunConfig config;         // completed and checked
    std::string state_directory;  // made if it does not exist
    // Told of every event as it happens, under a lock: must be quick. Optional.
    std::function<void(const v1::Event&)> on_event;
    // Told of reports, orders and commits. Optional; outlives the engine.
    Meter* meter = nullptr;
    // The model to start from, of a config with model.file.
    ModelPtr initial = nullptr;
  };
  // Opens the state directory; resumes the run in it if there is one (its config
  // must then be the same).
  static absl::StatusOr<std::unique_ptr<Engine>> Open(Options options);
  ~Engine();

  // The round loop: returns when the run is done, failed or stopped. Stopped
  // (Cancelled) leaves a run that the next process resumes.
  absl::Status Run();
  void Stop();

  // ---- for the service
  absl::StatusOr<SessionId> Join(const v1::JoinRequest& request, std::shared_ptr<OrderSink> sink);
  void Leave(SessionId session);
  // The file of the open round's model. The slice shares the model's memory.
  absl::StatusOr<grpc::Slice> FindModel(const std::string& sha256) const;
  // Clients and evaluators of the run; none while it gathers them.
  size_t roster_size() const {
    MutexLock lock(&mu_);
    return coordinator_->roster().size();
  }
  // May this report come: is it awaited in the open round, or a replay? Checked before
  // any payload is read.
  absl::Status Admit(const v1::ReportHeader& header) const;
  // A complete report: checks and counts it.
  absl::StatusOr<v1::Receipt> Submit(const v1::ReportHeader& header,
                                     absl::Span<const std::byte> payload);
  // After this report its process has nothing more to send in the round: `stream` is
  // told when the next orders have left, or the run is over. False: read on.
  bool Rest(const v1::ReportHeader& header, std::shared_ptr<RestingStream> stream);
  void EndRest(RestingStream* stream);  // it is gone
  // A call or report was refused with this status: it is counted, by its reason.
  void CountRefusal(const absl::Status& status);
  std::map<std::string, uint64_t> Refusals() const;
  // Longest time that one report may take to come in.
  absl::Duration upload_time() const {
    return absl::Seconds(options_.config.limits().upload_seconds());
  }
  // What is new since the given round and event.
  absl::StatusOr<v1::Observation> Observe(uint64_t after_round, uint64_t after_event) const;
  // The roster or, while the run gathers, who has joined; at most `most`.
  std::vector<ClientPresence> Clients(size_t most) const;
  // Calls `changed` whenever Observe has news: from any thread; it must neither
  // block nor (un)subscribe. Returns a function that ends this.
  std::function<void()> Subscribe(std::function<void()> changed);

 private:
  struct OpenTask {  // the open round, as uploads need it
    v1::Task task;
    TaskSums sums;
    ModelPtr base;
    grpc::Slice order;  // common part of its orders, serialized
    grpc::Slice file;   // the base model's bytes
  };
  struct Collected {
    std::vector<ClientIndex> accepted;  // with evaluators
    uint32_t sampled = 0;               // the rest without
    uint32_t reports = 0;
    uint32_t attempts = 0;
    uint32_t replaced = 0;
  };

  explicit Engine(Options options);
  absl::Status Resume();
  absl::Status Gather();
  absl::Status RunRounds();
  absl::StatusOr<Collected> Collect(const RoundPlan& plan);
  void AddEvaluators(RoundSpec& spec) ABSL_LOCKS_EXCLUDED(mu_);
  // Who is asked, and when the round ends.
  absl::StatusOr<RoundSpec> DrawRound(const RoundPlan& plan, uint32_t attempt);
  void OpenRound(const RoundPlan& plan, RoundSpec spec) ABSL_LOCKS_EXCLUDED(mu_);
  Coordinator::RoundState AwaitRound() ABSL_LOCKS_EXCLUDED(mu_);
  void TellCommits();
  // The round counts, and is written: at once or, with durability RELAXED, when the next
  // orders have left.
  absl::Status Commit(RoundPlan plan, const Collected& collected, absl::Time opened);
  absl::Status WriteRound();
  absl::Status Flush();  // nothing is left to be written
  absl::Status Finish(const absl::Status& outcome);
  // What one session's order adds to the common part.
  v1::Order OwnPart(const Assignment& work) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<v1::Receipt> Take(const v1::ReportHeader& header,
                                   absl::Span<const std::byte> payload);
  absl::Status CheckReport(const v1::ReportHeader& header) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddEvent(std::string kind, std::string subject, std::string text)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of a process that came or went; only so often.
  void TellPresence(std::string kind, std::string subject, std::string text)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FailClient(const std::string& client, absl::string_view why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A report of this client was refused for good; too many, and it is out.
  void Blame(const std::string& client, absl::string_view why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  using Outbox = std::vector<std::pair<std::shared_ptr<OrderSink>, v1::Order>>;
  void Address(const std::vector<Assignment>& work, Outbox& outbox) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SendOrders(const grpc::Slice& common, const Outbox& orders) ABSL_LOCKS_EXCLUDED(mu_);
  void WakeStreams() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status FlushEvents() ABSL_LOCKS_EXCLUDED(mu_);
  void NotifyObservers() ABSL_LOCKS_EXCLUDED(mu_, observers_mu_);
  void CloseSessions(bool finished, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  void EndSessions(bool finished, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  // Clients whose connection broke just before the end come back to hear of it.
  void AwaitStragglers() ABSL_LOCKS_EXCLUDED(mu_);
  v1::Order Farewell() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Constant after Open.
  const Options options_;
  std::string run_id_;

  // Touched by the thread in Run() only (and Open before it).
  absl::Status disk_;  // why writing failed: the run is not to blame, and can be resumed
  std::optional<RoundCommit> unwritten_;
  bool untold_ = false;  // observers have not heard of the last commit
  absl::Time told_ = absl::InfinitePast();
  std::unique_ptr<Store> store_;
  std::optional<Script> script_;

  mutable Mutex mu_;
  CondVar changed_ ABSL_GUARDED_BY(mu_);
  std::optional<Coordinator> coordinator_ ABSL_GUARDED_BY(mu_);
  std::map<SessionId, std::shared_ptr<OrderSink>> sinks_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<RestingStream*, std::shared_ptr<RestingStream>> resting_ ABSL_GUARDED_BY(mu_);
  SessionId next_session_ ABSL_GUARDED_BY(mu_) = 1;
  std::optional<v1::DataSchema> schema_ ABSL_GUARDED_BY(mu_);
  std::optional<ModelLayout> layout_ ABSL_GUARDED_BY(mu_);
  std::optional<OpenTask> open_ ABSL_GUARDED_BY(mu_);
  v1::Progress progress_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::Event> new_events_ ABSL_GUARDED_BY(mu_);
  uint64_t last_event_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t presence_told_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t committed_ ABSL_GUARDED_BY(mu_) = 0;
  std::string last_failure_ ABSL_GUARDED_BY(mu_);                  // what a client's refusal said
  std::map<std::string, uint32_t> blamed_ ABSL_GUARDED_BY(mu_);    // refused reports, by client
  std::map<std::string, uint64_t> refusals_ ABSL_GUARDED_BY(mu_);  // by reason
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;             // the run is over,
  std::set<std::string> stragglers_ ABSL_GUARDED_BY(mu_);  // and these do not know it

  std::atomic<int64_t> reports_told_ = 0;  // when observers last saw reports come, in ns

  Mutex fold_mu_;
  Workers folders_ ABSL_GUARDED_BY(fold_mu_);
  Tally tally_ ABSL_GUARDED_BY(fold_mu_);  // of the open round

  mutable Mutex reader_mu_;
  std::unique_ptr<Store> reader_ ABSL_GUARDED_BY(reader_mu_);  // for observers

  Mutex observers_mu_;
  uint64_t next_observer_ ABSL_GUARDED_BY(observers_mu_) = 1;
  std::map<uint64_t, std::function<void()>> observers_ ABSL_GUARDED_BY(observers_mu_);
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_ENGINE_H_
