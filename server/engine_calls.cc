// The parts of Engine that the service's threads call: membership, reports, observers.
// The round loop is in engine.cc.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/digest.h"
#include "common/reason.h"
#include "common/status.h"
#include "common/utf8.h"
#include "common/wire.h"
#include "server/engine.h"
#include "server/steady_time.h"

namespace leeway {
namespace {

// Of what a client says about its failure.
constexpr size_t kMostReasonBytes = 1024;

// "clinic_03", "a, b, c and 9 more".
template <typename NameAt>
std::string ClientNames(size_t count, const NameAt& name_at) {
  constexpr size_t kMostNames = 3;
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(count, kMostNames); ++i) names.push_back(name_at(i));
  return absl::StrCat(absl::StrJoin(names, ", "),
                      count > kMostNames ? absl::StrCat(" and ", count - kMostNames, " more") : "");
}

ReportKey KeyOf(const v1::ReportHeader& header) {
  // A client that was restarted computes the same report in another time.
  v1::ReportHeader same = header;
  same.clear_busy_seconds();
  same.clear_idle_seconds();
  return {header.round(),
          header.attempt(),
          {header.clients().begin(), header.clients().end()},
          Xxh3(same.SerializeAsString())};
}

}  // namespace

absl::StatusOr<v1::Welcome> Engine::Describe(const v1::JoinRequest& request) const {
  LEEWAY_RETURN_IF_ERROR(CheckJoin(request));
  v1::Welcome welcome;
  *welcome.mutable_model() = options_.config.model();
  welcome.set_seed(options_.config.seed());
  welcome.set_protocol_version(*ChooseProtocol(request));
  return welcome;
}

absl::StatusOr<SessionId> Engine::Join(const v1::JoinRequest& request,
                                       std::shared_ptr<OrderSink> sink) {
  LEEWAY_ASSIGN_OR_RETURN(v1::Welcome welcome, Describe(request));
  const SessionId session = sessions_.NewId();
  {
    MutexLock lock(&mu_);
    if (stopping_) return absl::UnavailableError("the run is over or the server is stopping");
    if (sessions_.AnswerLate(request, *sink)) return session;
    LEEWAY_RETURN_IF_ERROR(membership_.Join(session, request, SteadyNow()));
    v1::Order first;
    first.set_run_id(journal_->run_id());
    first.set_committed_round(journal_->committed());
    *first.mutable_welcome() = std::move(welcome);
    sessions_.Add(session, std::move(sink), first);
    journal_->AddPresence(v1::Event::JOINED, request.host(),
                          ClientNames(static_cast<size_t>(request.clients_size()), [&](size_t i) {
                            return request.clients(static_cast<int>(i)).id();
                          }));
    const std::string waits = membership_.WaitingText(session, progress_.PhaseText());
    if (!waits.empty()) {
      journal_->AddPresence(v1::Event::WAITING, request.clients(0).id(), waits);
    }
    sessions_.SendOrders({round_->WorkFor(session)});
    progress_.SetJoined(membership_.roster().joined());
    changed_.SignalAll();
  }
  sessions_.WakeResting();  // a stream of an earlier session may be needed again
  observers_.Notify();
  return session;
}

void Engine::Leave(SessionId session, const std::string& process) {
  {
    MutexLock lock(&mu_);
    if (!sessions_.Remove(session)) return;
    Roster& roster = membership_.roster();
    const absl::Span<const Enrolment> hosted = roster.EnrolledBy(session);
    const std::string names = ClientNames(hosted.size(), [&](size_t i) { return hosted[i].id; });
    roster.Leave(session, SteadyNow());
    progress_.SetJoined(membership_.roster().joined());
    if (!stopping_ && !progress_.over()) {
      journal_->AddPresence(v1::Event::LEFT,
                            process.empty() ? absl::StrCat("session ", session) : process,
                            names.empty() ? "its connection ended"
                                          : absl::StrCat("the connection of ", names, " ended"));
    }
    changed_.SignalAll();
  }
  observers_.Notify();
}

size_t Engine::roster_size() const {
  MutexLock lock(&mu_);
  return membership_.roster().clients().size();
}

absl::Status Engine::CheckHeader(const v1::ReportHeader& header) const {
  if (header.run_id() != journal_->run_id()) {
    return WithReason(absl::NotFoundError(absl::StrCat("run_id '", header.run_id(),
                                                       "' is unknown here; this server's run is ",
                                                       journal_->run_id())),
                      "unknown_run");
  }
  LEEWAY_RETURN_IF_ERROR(round_->CheckOpen(header.round(), header.attempt()));
  return round_->aggregator().Admit(header);
}

absl::Status Engine::Admit(const v1::ReportHeader& header) const {
  MutexLock lock(&mu_);
  LEEWAY_RETURN_IF_ERROR(CheckHeader(header));
  // Of a small report as much is here as Submit needs to check whose it is.
  if (header.clients().empty() || header.payload_size() <= kChunkBytes) return absl::OkStatus();
  return round_->CheckReport(KeyOf(header), SteadyNow()).status();
}

absl::StatusOr<Round::Admission> Engine::BeginReport(const v1::ReportHeader& header,
                                                     const ReportKey& key) {
  while (true) {
    LEEWAY_RETURN_IF_ERROR(CheckHeader(header));
    LEEWAY_ASSIGN_OR_RETURN(Round::Admission admission, round_->BeginReport(key, SteadyNow()));
    if (!admission.undecided) return admission;
    changed_.Wait(&mu_);  // another thread is adding the report that this depends on
  }
}

absl::StatusOr<v1::Receipt> Engine::Submit(const v1::ReportHeader& header,
                                           absl::Span<const std::byte> payload) {
  const ReportKey key = KeyOf(header);
  v1::Receipt receipt;
  receipt.set_round(header.round());
  Round::Admission admission;
  Aggregator* aggregator = nullptr;
  {
    MutexLock lock(&mu_);
    if (key.clients.empty()) {  // failures only
      LEEWAY_RETURN_IF_ERROR(CheckHeader(header));
      EndReport(header, key, absl::OkStatus());
      return receipt;
    }
    LEEWAY_ASSIGN_OR_RETURN(admission, BeginReport(header, key));
    aggregator = &round_->aggregator();
  }
  receipt.set_replay(admission.replay);
  if (admission.replay) return receipt;
  // Without the lock. The round stays open until EndReport.
  const absl::Status added = aggregator->Add(header, payload, admission.shares);
  {
    MutexLock lock(&mu_);
    EndReport(header, key, added);
  }
  observers_.NotifyNowAndThen();
  LEEWAY_RETURN_IF_ERROR(added);
  return receipt;
}

void Engine::EndReport(const v1::ReportHeader& header, const ReportKey& key,
                       const absl::Status& added) {
  const bool awaited = !key.clients.empty() && round_->EndReport(key, added.ok());
  if (added.ok()) progress_.AddTimes(header);
  for (const v1::ClientFailure& failure : header.failures()) {
    FailClient(failure.client(), failure.message(), Attempts::Fault::kOwn);
    if (options_.meter) options_.meter->Refused("client_failed");
  }
  // Sending again may fix a transfer error, but not a bad value.
  if (!added.ok() && !absl::IsDataLoss(added)) {
    const Attempts::Fault fault =
        key.clients.size() > 1 ? Attempts::Fault::kShared : Attempts::Fault::kOwn;
    for (const std::string& client : key.clients) FailClient(client, added.message(), fault);
  }
  if (awaited || round_->StateAt(SteadyNow()) != Round::State::kCollecting) changed_.SignalAll();
}

void Engine::FailClient(const std::string& client, absl::string_view why, Attempts::Fault fault) {
  if (!round_->Fail(client)) return;
  // A client may have written it.
  std::string reason = OneLine(why, kMostReasonBytes);
  journal_->AddEvent(v1::Event::REFUSED, client, reason);
  attempts_.AddFailure(client, std::move(reason), fault);
  changed_.SignalAll();
}

bool Engine::Rest(const v1::ReportHeader& header, std::shared_ptr<RestingStream> stream) {
  // Under the lock: the next round's orders, which wake the stream, come after this.
  MutexLock lock(&mu_);
  if (stopping_ || header.clients().empty()) return false;
  if (!round_->IsIdle(header.round(), header.attempt(), header.clients(0))) return false;
  return sessions_.Rest(std::move(stream));
}

v1::Progress Engine::progress() const {
  MutexLock lock(&mu_);
  return progress_.Now(*round_, membership_.roster());
}

absl::StatusOr<v1::Observation> Engine::Observe(uint64_t after_round, uint64_t after_event) const {
  // First where the run stands, so that it is never ahead of what is told of it.
  v1::Progress now = progress();
  LEEWAY_ASSIGN_OR_RETURN(Observers::Piece piece, observers_.NewsAfter(after_round, after_event));
  if (piece.last) *piece.news.mutable_progress() = std::move(now);
  return std::move(piece.news);
}

std::vector<ClientPresence> Engine::Clients(size_t most) const {
  MutexLock lock(&mu_);
  return membership_.Clients(most);
}

}  // namespace leeway
