#include "server/sessions.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/steady_time.h"

namespace leeway {
namespace {

// A slice over a model's file that keeps the model alive.
grpc::Slice ShareFile(const ModelPtr& model) {
  auto* owner = new ModelPtr(model);
  return grpc::Slice(
      const_cast<std::byte*>(model->file.data()), model->file.size(),
      [](void* p) { delete static_cast<ModelPtr*>(p); }, owner);
}

}  // namespace

SessionId Sessions::NewId() {
  MutexLock lock(&mu_);
  return ++last_session_;
}

void Sessions::Add(SessionId session, std::shared_ptr<OrderSink> sink, const v1::Order& welcome) {
  sink->Send(grpc::Slice(), welcome);
  MutexLock lock(&mu_);
  sinks_[session] = std::move(sink);
}

bool Sessions::Remove(SessionId session) {
  std::shared_ptr<OrderSink> gone;  // dies after the lock is released
  MutexLock lock(&mu_);
  const auto found = sinks_.find(session);
  if (found == sinks_.end()) return false;
  gone = std::move(found->second);
  sinks_.erase(found);
  return true;
}

void Sessions::Refuse(SessionId session, const absl::Status& why) {
  std::shared_ptr<OrderSink> sink;
  {
    MutexLock lock(&mu_);
    const auto found = sinks_.find(session);
    if (found == sinks_.end()) return;
    sink = std::move(found->second);
    sinks_.erase(found);
  }
  sink->Close(why);
}

void Sessions::SetRound(const v1::Order& order, std::vector<ModelPtr> models) {
  grpc::Slice common(order.SerializeAsString());
  MutexLock lock(&mu_);
  order_ = std::move(common);
  grouped_ = order.task().groups() > 1;
  models_.swap(models);  // the old ones die after the lock is released
}

void Sessions::SendOrders(const std::vector<Assignment>& work) {
  grpc::Slice common;
  std::vector<std::pair<std::shared_ptr<OrderSink>, v1::Order>> orders;
  orders.reserve(work.size());
  {
    MutexLock lock(&mu_);
    common = order_;
    for (const Assignment& part : work) {
      const auto sink = sinks_.find(part.session);
      if (sink == sinks_.end() || part.clients.empty()) continue;
      v1::Order own;
      own.mutable_clients()->Add(part.clients.begin(), part.clients.end());
      if (grouped_) own.mutable_groups()->Add(part.groups.begin(), part.groups.end());
      own.mutable_state_rounds()->Add(part.state_rounds.begin(), part.state_rounds.end());
      orders.emplace_back(sink->second, std::move(own));
    }
  }
  for (const auto& [sink, own] : orders) {
    if (meter_) meter_->Ordered(common.size() + own.ByteSizeLong());
    sink->Send(common, own);
  }
}

absl::StatusOr<grpc::Slice> Sessions::FindModel(const std::string& sha256) const {
  MutexLock lock(&mu_);
  for (const ModelPtr& model : models_) {
    if (model->sha256 != sha256) continue;
    if (meter_) meter_->Fetched(model->file.size());
    return ShareFile(model);
  }
  return absl::NotFoundError(
      absl::StrCat("model ", sha256, " is not served now; wait for the next order"));
}

bool Sessions::Rest(std::shared_ptr<RestingStream> stream) {
  MutexLock lock(&mu_);
  if (closed_) return false;
  RestingStream* const key = stream.get();
  resting_[key] = std::move(stream);
  return true;
}

void Sessions::EndRest(RestingStream* stream) {
  MutexLock lock(&mu_);
  resting_.erase(stream);
}

void Sessions::WakeResting() {
  decltype(resting_) streams;
  {
    MutexLock lock(&mu_);
    streams.swap(resting_);
  }
  for (const auto& [stream, owner] : streams) stream->OnOrders();
}

void Sessions::Close(const absl::Status& status) {
  Sinks sinks;
  {
    MutexLock lock(&mu_);
    closed_ = true;
    sinks = sinks_;
  }
  for (const auto& [session, sink] : sinks) sink->Close(status);
}

void Sessions::Finish(const v1::Order& last, std::vector<std::string> away) {
  Sinks sinks;
  {
    MutexLock lock(&mu_);
    closed_ = true;
    last_order_ = last;
    away_.insert(away.begin(), away.end());
    sinks = sinks_;
  }
  for (const auto& [session, sink] : sinks) {
    sink->Send(grpc::Slice(), last);
    sink->Close(absl::OkStatus());
  }
}

bool Sessions::AnswerLate(const v1::JoinRequest& request, OrderSink& sink) {
  v1::Order last;
  {
    MutexLock lock(&mu_);
    if (!last_order_) return false;
    last = *last_order_;
  }
  sink.Send(grpc::Slice(), last);
  sink.Close(absl::OkStatus());
  MutexLock lock(&mu_);
  for (const v1::HostedClient& client : request.clients()) away_.erase(client.id());
  changed_.SignalAll();
  return true;
}

void Sessions::AwaitAway(absl::Duration limit) {
  MutexLock lock(&mu_);
  const absl::Time until = SteadyNow() + limit;
  while (!away_.empty() && waiting_ && SteadyNow() < until) {
    changed_.WaitWithDeadline(&mu_, absl::Now() + (until - SteadyNow()));
  }
}

void Sessions::StopWaiting() {
  MutexLock lock(&mu_);
  waiting_ = false;
  changed_.SignalAll();
}

}  // namespace leeway
