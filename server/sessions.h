// Sessions: the processes that are connected, what is sent to them, and how they hear that
// the run is over. Thread-safe; never calls a stream while holding its lock.
#ifndef LEEWAY_SERVER_SESSIONS_H_
#define LEEWAY_SERVER_SESSIONS_H_

#include <grpcpp/support/slice.h>

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
#include "absl/time/time.h"
#include "common/model.h"
#include "common/mutex.h"
#include "proto/federation.pb.h"
#include "records/meter.h"
#include "server/round.h"

namespace leeway {

// A session's order stream. Never blocks.
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

class Sessions {
 public:
  // The meter is optional and outlives the sessions.
  explicit Sessions(Meter* meter) : meter_(meter) {}
  // The last EndRest may still be on its way out.
  ~Sessions() { MutexLock lock(&mu_); }
  Sessions(const Sessions&) = delete;
  Sessions& operator=(const Sessions&) = delete;

  SessionId NewId();
  // A process has joined under this id: it is sent this order first.
  void Add(SessionId session, std::shared_ptr<OrderSink> sink, const v1::Order& welcome);
  // It cannot stay: its stream ends with this status.
  void Refuse(SessionId session, const absl::Status& why);
  // It is gone. False if it was.
  bool Remove(SessionId session);

  // What is sent in the round that opens now: its order, and the models that it refers to.
  void SetRound(const v1::Order& order, std::vector<ModelPtr> models);
  // Sends the round's order to those who have work in it. Once all orders of a round have
  // left, call WakeResting.
  void SendOrders(const std::vector<Assignment>& work);
  // The file of one of the round's models. The slice shares the model's memory.
  absl::StatusOr<grpc::Slice> FindModel(const std::string& sha256) const;

  // `stream` is called when the next orders have left, or the run is over. False if it is
  // over.
  bool Rest(std::shared_ptr<RestingStream> stream);
  void EndRest(RestingStream* stream);  // it is gone
  // Not with a lock held that a stream may ask for.
  void WakeResting();

  // The server stops: all streams end with this status.
  void Close(const absl::Status& status);
  // The run is over: everybody is sent `last`, also who joins from now on. `away` are
  // clients whose connection broke a moment ago: they will come back to hear of it.
  void Finish(const v1::Order& last, std::vector<std::string> away);
  // After Finish: answers a process that joins. False before.
  bool AnswerLate(const v1::JoinRequest& request, OrderSink& sink);
  // Waits until all who were away have come back, or until `limit`, or StopWaiting.
  void AwaitAway(absl::Duration limit);
  void StopWaiting();

 private:
  using Sinks = std::map<SessionId, std::shared_ptr<OrderSink>>;

  Meter* const meter_;
  mutable Mutex mu_;
  CondVar changed_ ABSL_GUARDED_BY(mu_);
  SessionId last_session_ ABSL_GUARDED_BY(mu_) = 0;
  Sinks sinks_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<RestingStream*, std::shared_ptr<RestingStream>> resting_ ABSL_GUARDED_BY(mu_);
  grpc::Slice order_ ABSL_GUARDED_BY(mu_);  // of the round, the part that all have in common
  bool grouped_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<ModelPtr> models_ ABSL_GUARDED_BY(mu_);  // of the round
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<v1::Order> last_order_ ABSL_GUARDED_BY(mu_);  // once the run is over
  std::set<std::string> away_ ABSL_GUARDED_BY(mu_);
  bool waiting_ ABSL_GUARDED_BY(mu_) = true;
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_SESSIONS_H_
