// The parts of Engine that the service's threads call: membership, uploads,
// observers. The round loop is in engine.cc.
#include <google/protobuf/util/message_differencer.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/digest.h"
#include "common/encoding.h"
#include "common/reason.h"
#include "common/status.h"
#include "common/utf8.h"
#include "common/wire.h"
#include "server/engine.h"
#include "server/steady_time.h"

namespace leeway {
namespace {

// Observers see a round fill up this often.
constexpr absl::Duration kReportsTold = absl::Milliseconds(250);

// Longer than a client pauses between attempts to come back.
constexpr absl::Duration kFarewell = absl::Seconds(5);

// Of what a client says about its failure.
constexpr size_t kMostReasonBytes = 1024;

// How often it is recorded that a process came or went.
constexpr uint64_t kPresenceTold = 200;
constexpr uint64_t kPresenceToldPerClient = 20;

// Text has a target for every token.
uint64_t TargetsPerExample(const v1::Model& model, const v1::DataSchema& schema) {
  uint64_t targets = 1;
  for (const uint64_t side : schema.feature_shape()) targets *= model.has_lstm() ? side : 1;
  return targets;
}

}  // namespace

absl::StatusOr<SessionId> Engine::Join(const v1::JoinRequest& request,
                                       std::shared_ptr<OrderSink> sink) {
  LEEWAY_RETURN_IF_ERROR(CheckJoin(request));
  SessionId session = 0;
  {
    MutexLock lock(&mu_);
    if (stopping_) return absl::UnavailableError("the run is over or the server is stopping");
    if (finished_) {
      sink->Send(grpc::Slice(), Farewell());
      sink->Close(absl::OkStatus());
      for (const v1::HostedClient& c : request.clients()) stragglers_.erase(c.id());
      changed_.SignalAll();
      return next_session_++;
    }
    LEEWAY_ASSIGN_OR_RETURN(ModelLayout layout,
                            LayoutOf(options_.config.model(), request.schema()));
    // A model from a file says nothing of data: whether they fit is the worker's affair.
    if (schema_ && !options_.config.model().has_file() &&
        !google::protobuf::util::MessageDifferencer::Equals(*schema_, request.schema())) {
      return absl::InvalidArgumentError(
          absl::StrCat("data of '", request.clients(0).id(), "' has the shape {",
                       request.schema().ShortDebugString(), "}, the run's clients have {",
                       schema_->ShortDebugString(), "}; prepare all clients' data alike"));
    }
    std::vector<Enrolment> clients;
    clients.reserve(static_cast<size_t>(request.clients_size()));
    for (const v1::HostedClient& c : request.clients()) {
      // An evaluator has no training examples, as CheckJoin makes sure.
      clients.push_back({c.id(), c.examples(), c.test_examples()});
    }
    session = next_session_++;
    LEEWAY_RETURN_IF_ERROR(coordinator_->Join(session, request.instance(), std::move(clients)));
    schema_ = request.schema();
    layout_ = std::move(layout);
    v1::Order welcome;
    welcome.set_run_id(run_id_);
    welcome.set_committed_round(committed_);
    *welcome.mutable_welcome()->mutable_model() = options_.config.model();
    welcome.mutable_welcome()->set_seed(options_.config.seed());
    welcome.mutable_welcome()->set_protocol_version(*ChooseProtocol(request));
    sink->Send(grpc::Slice(), welcome);
    sinks_[session] = sink;
    TellPresence(
        "joined", request.host(),
        absl::StrCat(request.clients_size(), " client(s), first '", request.clients(0).id(), "'"));
    if (open_ && coordinator_->round_open()) {
      const Assignment work = coordinator_->WorkFor(session);
      if (!work.clients.empty()) sink->Send(open_->order, OwnPart(work));
    }
    progress_.set_joined(coordinator_->joined());
    changed_.SignalAll();
  }
  WakeStreams();  // one of an earlier session may be needed again
  NotifyObservers();
  return session;
}

void Engine::Leave(SessionId session) {
  {
    MutexLock lock(&mu_);
    if (sinks_.erase(session) == 0) return;
    coordinator_->Leave(session, SteadyNow());
    progress_.set_joined(coordinator_->joined());
    // Nobody is left who says what the data look like.
    if (sinks_.empty() && coordinator_->roster().empty()) {
      schema_.reset();
      layout_.reset();
    }
    if (!stopping_ && !finished_)
      TellPresence("left", absl::StrCat("session ", session), "its stream ended");
    changed_.SignalAll();
  }
  NotifyObservers();
}

void Engine::CloseSessions(bool finished, const absl::Status& status) {
  EndSessions(finished, status);
  WakeStreams();
}

void Engine::EndSessions(bool finished, const absl::Status& status) {
  MutexLock lock(&mu_);
  for (const auto& [session, sink] : sinks_) {
    if (finished) sink->Send(grpc::Slice(), Farewell());
    sink->Close(status);
  }
  finished_ = finished;
  if (finished) {
    for (std::string& client : coordinator_->GoneAfter(SteadyNow() - kFarewell)) {
      stragglers_.insert(std::move(client));
    }
  } else {
    stopping_ = true;
  }
}

v1::Order Engine::Farewell() const {
  v1::Order order;
  order.set_run_id(run_id_);
  order.set_finished(true);
  order.set_committed_round(committed_);
  return order;
}

void Engine::AwaitStragglers() {
  MutexLock lock(&mu_);
  const absl::Time until = SteadyNow() + kFarewell;
  while (!stragglers_.empty() && !stopping_ && SteadyNow() < until) {
    changed_.WaitWithDeadline(&mu_, absl::Now() + (until - SteadyNow()));
  }
  stopping_ = true;
}

absl::StatusOr<grpc::Slice> Engine::FindModel(const std::string& sha256) const {
  MutexLock lock(&mu_);
  if (open_ && open_->base->sha256 == sha256) {
    if (options_.meter) options_.meter->Fetched(open_->file.size());
    return open_->file;
  }
  return absl::NotFoundError(
      absl::StrCat("model ", sha256, " is not served now; wait for the next order"));
}

absl::Status Engine::CheckReport(const v1::ReportHeader& header) const {
  if (header.run_id() != run_id_) {
    return WithReason(
        absl::NotFoundError(absl::StrCat("run_id '", header.run_id(),
                                         "' is unknown here; this server's run is ", run_id_)),
        "unknown_run");
  }
  LEEWAY_RETURN_IF_ERROR(coordinator_->CheckOpen(header.round(), header.attempt()));
  if (header.base_sha256() != open_->base->sha256) {
    return WithReason(absl::FailedPreconditionError(absl::StrCat(
                          "base_sha256 is ", header.base_sha256(), ", this round starts from ",
                          open_->base->sha256, "; fetch that model")),
                      "wrong_base");
  }
  return CheckHeader(header, open_->sums, EncodingFor(open_->task.encoding(), layout_->float64));
}

absl::Status Engine::Admit(const v1::ReportHeader& header) const {
  const std::vector<std::string> clients(header.clients().begin(), header.clients().end());
  const uint64_t digest = Xxh3(header.SerializeAsString());
  MutexLock lock(&mu_);
  LEEWAY_RETURN_IF_ERROR(CheckReport(header));
  if (clients.empty()) return absl::OkStatus();  // failures only
  return coordinator_->CheckReport(header.round(), header.attempt(), clients, digest, SteadyNow())
      .status();
}

absl::StatusOr<v1::Receipt> Engine::Submit(const v1::ReportHeader& header,
                                           absl::Span<const std::byte> payload) {
  absl::StatusOr<v1::Receipt> receipt = Take(header, payload);
  const int64_t now = absl::GetCurrentTimeNanos();
  int64_t told = reports_told_.load(std::memory_order_relaxed);
  if (now - told >= absl::ToInt64Nanoseconds(kReportsTold) &&
      reports_told_.compare_exchange_strong(told, now)) {
    NotifyObservers();
  }
  return receipt;
}

absl::StatusOr<v1::Receipt> Engine::Take(const v1::ReportHeader& header,
                                         absl::Span<const std::byte> payload) {
  const std::vector<std::string> clients(header.clients().begin(), header.clients().end());
  const uint64_t digest = Xxh3(header.SerializeAsString());
  v1::Receipt receipt;
  receipt.set_round(header.round());
  std::vector<GroupShare> shares;
  ReportLimits limits;
  TaskSums sums;
  {
    MutexLock lock(&mu_);
    LEEWAY_RETURN_IF_ERROR(CheckReport(header));
    if (!clients.empty()) {
      LEEWAY_ASSIGN_OR_RETURN(const Coordinator::ReportState state,
                              coordinator_->BeginReport(header.round(), header.attempt(), clients,
                                                        digest, SteadyNow()));
      if (state == Coordinator::ReportState::kReplay) {
        receipt.set_replay(true);
        return receipt;
      }
      shares = coordinator_->SharesOf(clients, open_->task.weighting() == v1::EXAMPLES,
                                      open_->sums.shape().groups);
      limits = {open_->task.max_norm(), TargetsPerExample(options_.config.model(), *schema_)};
      sums = open_->sums;
    }
  }
  absl::Status folded;
  if (!clients.empty()) {
    MutexLock lock(&fold_mu_);
    const absl::Time begun = options_.meter ? absl::Now() : absl::Time();
    folded = FoldReport(header, payload, shares, sums, limits, tally_, &folders_);
    if (options_.meter && folded.ok()) {
      options_.meter->Folded(absl::Now() - begun, payload.size());
    }
  }
  MutexLock lock(&mu_);
  if (!clients.empty()) coordinator_->EndReport(clients, folded.ok());
  for (const v1::ClientFailure& failure : header.failures()) {
    FailClient(failure.client(), failure.message());
    if (options_.meter) options_.meter->Refused("client_failed");
  }
  // A transfer error may be mended by sending again; a bad value may not.
  if (!folded.ok() && !absl::IsDataLoss(folded)) {
    for (const std::string& client : clients) {
      FailClient(client, folded.message());
      Blame(client, folded.message());
    }
  }
  if (coordinator_->State(SteadyNow()) != Coordinator::RoundState::kCollecting) {
    changed_.SignalAll();
  }
  LEEWAY_RETURN_IF_ERROR(folded);
  return receipt;
}

bool Engine::Rest(const v1::ReportHeader& header, std::shared_ptr<RestingStream> stream) {
  MutexLock lock(&mu_);
  if (finished_ || stopping_ || header.clients().empty() ||
      !coordinator_->IsIdle(header.round(), header.attempt(), header.clients(0))) {
    return false;
  }
  resting_[stream.get()] = stream;
  return true;
}

void Engine::WakeStreams() {
  decltype(resting_) streams;
  {
    MutexLock lock(&mu_);
    streams.swap(resting_);
  }
  for (const auto& [stream, owner] : streams) stream->OnOrders();
}

void Engine::EndRest(RestingStream* stream) {
  MutexLock lock(&mu_);
  resting_.erase(stream);
}

void Engine::FailClient(const std::string& client, absl::string_view why) {
  if (!coordinator_->Fail(client)) return;
  const std::string line = OneLine(why, kMostReasonBytes);  // a client may have written it
  last_failure_ = absl::StrCat("client '", client, "': ", line);
  AddEvent("refused", client, line);
  changed_.SignalAll();
}

void Engine::Blame(const std::string& client, absl::string_view why) {
  if (++blamed_[client] < options_.config.limits().quarantine_after()) return;
  if (!coordinator_->Quarantine(client)) return;
  AddEvent(kQuarantined, client,
           absl::StrCat(blamed_[client], " refused reports: out of the run. The last: ", why));
}

void Engine::CountRefusal(const absl::Status& status) {
  if (status.ok() || absl::IsCancelled(status)) return;
  MutexLock lock(&mu_);
  const std::string reason = ReasonOf(status);
  ++refusals_[reason];
  if (options_.meter) options_.meter->Refused(reason);
}

std::map<std::string, uint64_t> Engine::Refusals() const {
  MutexLock lock(&mu_);
  return refusals_;
}

// A process that joins and leaves without end must not fill the disk.
void Engine::TellPresence(std::string kind, std::string subject, std::string text) {
  const uint64_t most = kPresenceTold + kPresenceToldPerClient * uint64_t{coordinator_->expected()};
  if (presence_told_ > most) return;
  if (++presence_told_ <= most) {
    AddEvent(std::move(kind), std::move(subject), std::move(text));
  } else {
    AddEvent(std::move(kind), "",
             absl::StrCat("processes have come or gone ", most,
                          " times; from here on this is not recorded"));
  }
}

void Engine::AddEvent(std::string kind, std::string subject, std::string text) {
  v1::Event event;
  event.set_sequence(++last_event_);
  event.set_time(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  event.set_kind(std::move(kind));
  event.set_subject(std::move(subject));
  event.set_text(std::move(text));
  if (options_.on_event) options_.on_event(event);
  new_events_.push_back(std::move(event));
}

absl::Status Engine::FlushEvents() {
  std::vector<v1::Event> events;
  {
    MutexLock lock(&mu_);
    events.swap(new_events_);
  }
  for (const v1::Event& event : events) LEEWAY_RETURN_IF_ERROR(store_->AddEvent(event));
  return absl::OkStatus();
}

absl::StatusOr<v1::Observation> Engine::Observe(uint64_t after_round, uint64_t after_event) const {
  v1::Observation observation;
  {
    MutexLock lock(&mu_);
    *observation.mutable_progress() = progress_;
    if (coordinator_->round_open()) {
      observation.mutable_progress()->set_reports(coordinator_->reports());
    }
  }
  MutexLock lock(&reader_mu_);
  if (reader_ == nullptr) return observation;
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<v1::RoundRecord> rounds,
                          reader_->RoundsAfter(after_round));
  observation.mutable_rounds()->Add(rounds.begin(), rounds.end());
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<v1::Event> events, reader_->EventsAfter(after_event));
  observation.mutable_events()->Add(events.begin(), events.end());
  return observation;
}

std::vector<ClientPresence> Engine::Clients(size_t most) const {
  MutexLock lock(&mu_);
  std::vector<ClientPresence> clients;
  const std::vector<Enrolment>& roster = coordinator_->roster();
  for (size_t i = 0; i < std::min(roster.size(), most); ++i) {
    clients.push_back(
        {roster[i].id, roster[i].examples, coordinator_->connected(static_cast<ClientIndex>(i))});
  }
  if (!roster.empty()) return clients;
  for (Enrolment& one : coordinator_->gathered()) {
    if (clients.size() == most) break;
    clients.push_back({std::move(one.id), one.examples, true});
  }
  return clients;
}

std::function<void()> Engine::Subscribe(std::function<void()> changed) {
  MutexLock lock(&observers_mu_);
  const uint64_t id = next_observer_++;
  observers_[id] = std::move(changed);
  return [this, id] {
    MutexLock inner(&observers_mu_);
    observers_.erase(id);
  };
}

void Engine::NotifyObservers() {
  // Under observers_mu_, so that an observer that has unsubscribed is not called.
  MutexLock lock(&observers_mu_);
  for (const auto& [id, changed] : observers_) changed();
}

}  // namespace leeway
