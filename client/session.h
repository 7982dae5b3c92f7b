// Session: one Join stream, from the request to its end. It takes the orders off the stream,
// has them answered by a RunMember, and sends the reports. One thread and one queue serve
// orders and uploads, so that a round costs this process one wake-up. For one thread.
#ifndef LEEWAY_CLIENT_SESSION_H_
#define LEEWAY_CLIENT_SESSION_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/raw_stream.h"
#include "client/report_upload.h"
#include "client/run_member.h"
#include "common/mutex.h"
#include "proto/federation.pb.h"

namespace leeway {

class Session {
 public:
  // Opens the stream. The member and the mutex, which is held while an order is answered,
  // outlive this.
  Session(RunMember& member, Mutex& answering, const std::shared_ptr<grpc::Channel>& channel,
          const v1::JoinRequest& request);

  enum class End {
    kRunOver,    // the server has said so
    kRunFailed,  // the same, and failure() says why
    kBroken      // the stream has ended before: join again
  };
  // Blocks until the stream ends. A transient error: join again.
  absl::StatusOr<End> Run();
  // The server has let this process in.
  bool joined() const { return joined_; }
  const std::string& failure() const { return failure_; }

 private:
  //   kWaiting  -> kHolding    an order has come
  //             -> kSkimming   an order has come, and newer ones may follow at once
  //             -> kOver       the stream has ended
  //   kHolding  -> kWaiting    nothing else is to be done first: the order is answered, and
  //                            then the next is read
  //             -> kOver       the order said that the run is over
  //   kSkimming -> kSkimming   a newer order has come and taken the place of the one we hold
  //             -> kWaiting    no newer one is there: the order is answered
  //             -> kOver       the order said that the run is over, or the stream has ended
  enum class State {
    kWaiting,   // for an order; a read is under way
    kHolding,   // an order. No read is under way: as soon as one is, gRPC tells the server
                // that there is room for more, and wakes it for that; after the report it is
                // awake anyway
    kSkimming,  // an order, and a read is under way, because this process is late
    kOver
  };

  bool reading() const { return state_ == State::kWaiting || state_ == State::kSkimming; }
  // Newer orders may wait to be read: the last one took long, or a report was refused,
  // perhaps because it came late.
  bool late() const { return slow_ || upload_.refused(); }
  absl::Status AnswerOrder();
  absl::Status TakeOrder();
  // The order says that the run is over.
  void Finish(const v1::Order& order);

  RunMember& member_;
  Mutex& answering_;
  CallQueue queue_;
  RawStream join_;
  ReportUpload upload_;
  State state_ = State::kWaiting;
  End end_ = End::kBroken;
  std::string failure_;
  // Only the newest order counts: a process that was busy while rounds went by takes up
  // the one that is open now.
  v1::Order held_;       // kHolding and kSkimming
  bool joined_ = false;  // for those who ask
  bool slow_ = false;    // the last order took long
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_SESSION_H_
