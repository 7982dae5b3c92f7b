#include "server/membership.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"

namespace leeway {
namespace {

std::vector<Enrolment> EnrolmentsIn(const v1::JoinRequest& request) {
  std::vector<Enrolment> clients;
  clients.reserve(static_cast<size_t>(request.clients_size()));
  for (const v1::HostedClient& c : request.clients()) {
    // An evaluator has no training examples, as CheckJoin makes sure.
    clients.push_back({c.id(), c.examples(), c.test_examples(), c.digest()});
  }
  return clients;
}

absl::Status OddShape(absl::string_view client, const v1::DataSchema& shape,
                      const v1::DataSchema& common) {
  return absl::InvalidArgumentError(
      absl::StrCat("data of '", client, "' has the shape {", shape.ShortDebugString(),
                   "}, most of the run's clients have {", common.ShortDebugString(),
                   "}; prepare all clients' data alike"));
}

v1::Epoch EpochOf(const Roster& roster, const EpochChange& change, uint64_t round) {
  v1::Epoch epoch;
  epoch.set_number(roster.epoch());
  epoch.set_first_round(round);
  epoch.set_roster(static_cast<uint32_t>(roster.clients().size()));
  epoch.mutable_returned()->Add(change.returned.begin(), change.returned.end());
  epoch.mutable_left()->Add(change.left.begin(), change.left.end());
  epoch.set_population(roster.population());
  return epoch;
}

EpochNames NamesIn(const Roster& roster, const EpochChange& change, const v1::Epoch& epoch) {
  EpochNames names = {epoch.number(), epoch.first_round(), epoch.population(), {}, {}, {}};
  for (const Enrolment& client : change.entered) names.entered.push_back(client.id);
  for (const ClientIndex index : change.returned) {
    names.returned.push_back(roster.clients()[index].id);
  }
  for (const ClientIndex index : change.left) names.left.push_back(roster.clients()[index].id);
  return names;
}

}  // namespace

std::string FewNames(absl::Span<const std::string> names) {
  constexpr size_t kMost = 10;
  const std::string first = absl::StrJoin(names.first(std::min(names.size(), kMost)), ", ");
  if (names.size() <= kMost) return first;
  return absl::StrCat(first, " and ", names.size() - kMost, " more");
}

Membership::Membership(const v1::RunConfig& config, const std::vector<PlannedEpoch>& plan)
    : config_(config), plan_(plan), roster_(config.cohort().clients(), config.cohort().closed()) {}

absl::Status Membership::Restore(const Journal::SavedRun& saved, absl::Time now) {
  std::vector<Enrolment> clients;
  clients.reserve(saved.roster.size());
  for (const StoredClient& c : saved.roster) {
    clients.push_back({c.id, c.examples, c.test_examples, c.digest});
  }
  Attendance attendance(saved.roster);
  for (const v1::Epoch& epoch : saved.epochs) LEEWAY_RETURN_IF_ERROR(attendance.Begin(epoch));
  std::vector<Standing> standings;
  for (const v1::ClientStanding& one : saved.standings.clients()) {
    standings.push_back({one.client(), one.refused(), one.quarantined()});
  }
  LEEWAY_ASSIGN_OR_RETURN(ModelLayout layout, LayoutOf(config_.model(), saved.schema));
  roster_ = Roster(std::move(clients), now, attendance.epoch().number(), attendance.Away(),
                   config_.cohort().closed());
  roster_.Restore(standings);
  data_ = Data{saved.schema, std::move(layout)};
  return absl::OkStatus();
}

absl::Status Membership::CheckData(const v1::JoinRequest& request) const {
  LEEWAY_RETURN_IF_ERROR(LayoutOf(config_.model(), request.schema()).status());
  // While clients gather nobody knows what most of them have.
  if (!data_ || any_data() ||
      google::protobuf::util::MessageDifferencer::Equals(data_->schema, request.schema())) {
    return absl::OkStatus();
  }
  return OddShape(request.clients(0).id(), request.schema(), data_->schema);
}

absl::Status Membership::Join(SessionId session, const v1::JoinRequest& request, absl::Time now) {
  LEEWAY_RETURN_IF_ERROR(CheckData(request));
  return roster_.Join(session, request.instance(), EnrolmentsIn(request), now,
                      request.schema().SerializeAsString());
}

absl::StatusOr<EpochChange> Membership::FirstEpoch(absl::Time now) const {
  if (!plan_.empty()) return roster_.FollowPlan(plan_[0]);
  if (!roster_.ready()) return absl::UnavailableError("too few clients");
  return roster_.NextEpoch(now, absl::InfiniteDuration(), 0);
}

absl::StatusOr<std::vector<Membership::OddProcess>> Membership::AgreeOnData() {
  const std::string common = roster_.CommonShape();
  v1::DataSchema schema;
  if (!schema.ParseFromString(common)) return absl::InternalError("a schema cannot be read");
  std::vector<OddProcess> odd;
  if (!any_data()) {
    for (const auto& [session, shape, client] : roster_.SessionsWithout(common)) {
      v1::DataSchema own;
      own.ParseFromString(shape);
      odd.push_back({session, client, OddShape(client, own, schema)});
    }
  }
  if (!odd.empty()) return odd;
  LEEWAY_ASSIGN_OR_RETURN(ModelLayout layout, LayoutOf(config_.model(), schema));
  data_ = Data{std::move(schema), std::move(layout)};
  return odd;
}

absl::StatusOr<EpochChange> Membership::NextEpoch(uint64_t round, absl::Time now) const {
  if (plan_.empty()) {
    const v1::Cohort& rule = config_.cohort();
    const absl::Duration absent_after = rule.absent_after_seconds() > 0
                                            ? absl::Seconds(rule.absent_after_seconds())
                                            : absl::InfiniteDuration();
    return roster_.NextEpoch(now, absent_after, rule.minimum_reports());
  }
  const size_t begun = roster_.epoch();
  if (begun >= plan_.size() || plan_[begun].first_round > round) return EpochChange();
  return roster_.FollowPlan(plan_[begun]);
}

Membership::Begun Membership::BeginEpoch(const EpochChange& change, uint64_t round) {
  roster_.BeginEpoch(change);
  Begun begun;
  begun.epoch = EpochOf(roster_, change, round);
  for (const Enrolment& client : change.entered) {
    begun.entered.push_back({client.id, client.examples, client.test_examples, client.digest});
  }
  begun.names = NamesIn(roster_, change, begun.epoch);
  return begun;
}

std::string Membership::WaitingText(SessionId session, absl::string_view phase) const {
  if (roster_.epoch() == 0) return "";
  size_t waiting = 0;
  for (const ClientIndex index : roster_.HostedBy(session)) {
    if (index == kNoIndex || !roster_.present(index)) ++waiting;
  }
  if (waiting == 0) return "";
  std::string text = absl::StrCat(waiting, waiting == 1 ? " client waits" : " clients wait");
  if (!plan_.empty()) return absl::StrCat(text, " for the round named by --epochs-from");
  absl::StrAppend(&text, waiting == 1 ? " and takes" : " and take",
                  " part from the next training round on");
  if (!held_) return text;
  return absl::StrCat(text, ": ", phase, " needs the same clients to its end");
}

std::vector<ClientPresence> Membership::Clients(size_t most) const {
  std::vector<ClientPresence> clients;
  const std::vector<Enrolment>& roster = roster_.clients();
  for (size_t i = 0; i < std::min(roster.size(), most); ++i) {
    const auto index = static_cast<ClientIndex>(i);
    clients.push_back(
        {roster[i].id, roster[i].examples, roster_.connected(index), roster_.present(index)});
  }
  for (Enrolment& one : roster_.Newcomers()) {
    if (clients.size() >= most) break;
    clients.push_back({std::move(one.id), one.examples, true, roster.empty()});
  }
  return clients;
}

std::string Membership::NamesOf(absl::Span<const ClientIndex> clients) const {
  std::vector<std::string> names;
  names.reserve(clients.size());
  for (const ClientIndex client : clients) names.push_back(roster_.clients()[client].id);
  return FewNames(names);
}

}  // namespace leeway
