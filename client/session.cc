#include "client/session.h"

#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "common/status.h"
#include "proto/federation.grpc.pb.h"

namespace leeway {
namespace {

constexpr char kJoinMethod[] = "/leeway.v1.Federation/Join";
constexpr absl::Duration kShortWork = absl::Milliseconds(20);

// What of an order must not be lost when a newer one takes its place.
void Carry(v1::Order& older, v1::Order& newer) {
  // The welcome must not be overtaken by the order that follows it.
  if (older.has_welcome()) newer.mutable_welcome()->Swap(older.mutable_welcome());
  // Clients that step in for others come in an order of their own.
  if (older.round() == newer.round() && older.attempt() == newer.attempt()) {
    newer.mutable_clients()->MergeFrom(older.clients());
    newer.mutable_groups()->MergeFrom(older.groups());
    newer.mutable_state_rounds()->MergeFrom(older.state_rounds());
  }
}

}  // namespace

Session::Session(RunMember& member, Mutex& answering, const std::shared_ptr<grpc::Channel>& channel,
                 const v1::JoinRequest& request)
    : member_(member),
      answering_(answering),
      join_(channel, kJoinMethod, queue_),
      upload_(channel, queue_, member.log()) {
  const grpc::Slice slice(request.SerializeAsString());
  if (join_.Write(grpc::ByteBuffer(&slice, 1))) join_.WritesDone();
  join_.BeginRead();
}

absl::StatusOr<Session::End> Session::Run() {
  while (state_ != State::kOver) {
    if (state_ == State::kWaiting) {
      if (!join_.read_done()) queue_.Await();
    } else if (!queue_.Poll()) {
      LEEWAY_RETURN_IF_ERROR(AnswerOrder());
    }
    if (reading() && join_.read_done()) LEEWAY_RETURN_IF_ERROR(TakeOrder());
    if (upload_.ended()) LEEWAY_RETURN_IF_ERROR(upload_.HandleEnd(member_.last()));
  }
  return end_;
}

absl::Status Session::AnswerOrder() {
  MutexLock lock(&answering_);
  const v1::Order order = std::exchange(held_, {});
  const State before = std::exchange(state_, State::kWaiting);
  if (order.has_welcome()) {
    joined_ = true;
    LEEWAY_RETURN_IF_ERROR(member_.Enter(order));
  }
  if (order.finished()) {
    Finish(order);
    return absl::OkStatus();
  }
  const absl::Time began = absl::Now();
  if (order.round() != 0) {
    LEEWAY_ASSIGN_OR_RETURN(const bool awaited, member_.Answer(order));
    if (awaited) upload_.Send(member_.last());
    if (awaited && !member_.last().header.without_receipt()) upload_.AwaitReceipt();
  }
  slow_ = absl::Now() - began > kShortWork;
  if (before == State::kHolding) join_.BeginRead();
  return absl::OkStatus();
}

void Session::Finish(const v1::Order& order) {
  state_ = State::kOver;
  end_ = order.failure().empty() ? End::kRunOver : End::kRunFailed;
  failure_ = order.failure();
}

absl::Status Session::TakeOrder() {
  std::optional<grpc::ByteBuffer> message = join_.TakeRead();
  if (!message) {
    const bool finished = state_ == State::kSkimming && held_.finished();
    state_ = State::kOver;
    if (!finished) return join_.Finish();
    Finish(held_);
    return absl::OkStatus();
  }
  v1::Order order;
  if (!grpc::SerializationTraits<v1::Order>::Deserialize(&*message, &order).ok()) {
    return absl::InternalError("the server sent an order that cannot be read");
  }
  if (state_ == State::kSkimming) Carry(held_, order);
  held_ = std::move(order);
  state_ = late() ? State::kSkimming : State::kHolding;
  if (state_ == State::kSkimming) join_.BeginRead();
  return absl::OkStatus();
}

}  // namespace leeway
