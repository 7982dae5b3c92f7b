#include "client/run_member.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/digest.h"
#include "common/failpoint.h"
#include "common/status.h"

namespace leeway {
namespace {

// Of what the answer depends on besides round, model and clients. A server that was restarted
// with other limits asks for the same round in another way.
uint64_t TaskDigest(const v1::Order& order) {
  std::string asked = order.task().SerializeAsString();
  asked.append(reinterpret_cast<const char*>(order.groups().data()),
               static_cast<size_t>(order.groups_size()) * sizeof(uint32_t));
  return Xxh3(asked);
}

}  // namespace

absl::Status RunMember::Prepare(const v1::Welcome& welcome) {
  LEEWAY_RETURN_IF_ERROR(worker_.Prepare(welcome));
  prepared_ = welcome.SerializeAsString();
  return absl::OkStatus();
}

absl::Status RunMember::Enter(const v1::Order& order) {
  log_.set_run(order.run_id());
  log_.Write(
      LogLine::Level::kInfo, "joined",
      absl::StrCat(order.run_id() == run_id_ ? "the run again, " : "a run, ", worker_.clients(),
                   " client(s), ", order.committed_round(), " rounds are done"));
  if (order.run_id() == run_id_) return absl::OkStatus();
  run_id_.clear();
  models_.Clear();
  last_ = {};
  seed_ = order.welcome().seed();
  if (std::exchange(prepared_, "") != order.welcome().SerializeAsString()) {
    LEEWAY_RETURN_IF_ERROR(worker_.Prepare(order.welcome()));
  }
  run_id_ = order.run_id();
  return absl::OkStatus();
}

absl::StatusOr<bool> RunMember::Answer(const v1::Order& order) {
  if (IsAnswered(order)) return true;
  const absl::StatusOr<OrderModels> models = models_.Get(order);
  if (absl::IsNotFound(models.status())) return false;
  LEEWAY_RETURN_IF_ERROR(models.status());
  Failpoint("client.before_work");
  const absl::Time began = absl::Now();
  LEEWAY_ASSIGN_OR_RETURN(last_, answer_(worker_, order, *models, seed_));
  last_task_ = TaskDigest(order);
  Failpoint("client.after_work");
  // A worker that has failed may end this process with itself: not before the server knows.
  last_.header.set_without_receipt(last_.header.failures().empty());
  LogAnswer(absl::Now() - began);
  return true;
}

void RunMember::LogAnswer(absl::Duration took) const {
  const v1::ReportHeader& header = last_.header;
  for (const v1::ClientFailure& failure : header.failures()) {
    log_.Write(LogLine::Level::kWarning, "failed", failure.message(), header.round(),
               failure.client());
  }
  if (log_.LeavesOut(LogLine::Level::kDebug)) return;
  log_.Write(LogLine::Level::kDebug, "worked",
             absl::StrCat("for ", header.clients_size(), " client(s), ", absl::FormatDuration(took),
                          ", ", header.payload_size(), " bytes to send"),
             header.round());
}

bool RunMember::IsAnswered(const v1::Order& order) const {
  const v1::ReportHeader& last = last_.header;
  if (last.run_id() != order.run_id() || last.round() != order.round() ||
      last.attempt() != order.attempt() || last.base_sha256() != order.model().sha256() ||
      last_task_ != TaskDigest(order)) {
    return false;
  }
  std::set<std::string> answered(last.clients().begin(), last.clients().end());
  for (const v1::ClientFailure& failure : last.failures()) answered.insert(failure.client());
  std::set<std::string> asked;
  for (const uint32_t client : order.clients()) {
    if (client < worker_.clients()) asked.insert(worker_.ClientId(client));
  }
  return answered == asked;
}

}  // namespace leeway
