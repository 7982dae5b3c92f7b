#include "server/coordinator.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/reason.h"
#include "common/status.h"

namespace leeway {
namespace {

constexpr size_t kMostLookedAt = 256;

uint32_t CountClients(const std::vector<Enrolment>& enrolled) {
  return static_cast<uint32_t>(std::count_if(enrolled.begin(), enrolled.end(),
                                             [](const Enrolment& e) { return !e.evaluator(); }));
}

std::vector<Assignment> Values(std::map<SessionId, Assignment> work) {
  std::vector<Assignment> all;
  all.reserve(work.size());
  for (auto& [session, assignment] : work) all.push_back(std::move(assignment));
  return all;
}

}  // namespace

Coordinator::Coordinator(std::vector<Enrolment> roster)
    : expected_(CountClients(roster)), frozen_(true), roster_(std::move(roster)) {
  IndexRoster();
}

void Coordinator::IndexRoster() {
  places_.resize(roster_.size());
  population_ = CountClients(roster_);
  eligible_.resize(population_);
  std::iota(eligible_.begin(), eligible_.end(), ClientIndex{0});
  for (size_t i = 0; i < roster_.size(); ++i) index_[roster_[i].id] = static_cast<ClientIndex>(i);
}

absl::Status Coordinator::CheckMember(SessionId session, uint64_t instance,
                                      const Enrolment& client) const {
  SessionId holder = 0;
  if (frozen_) {
    const auto found = index_.find(client.id);
    if (found == index_.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("client '", client.id, "' is not one of the ", roster_.size(),
                       " clients this run started with; start a new run to include it"));
    }
    const Enrolment& known = roster_[found->second];
    if (known.examples != client.examples || known.test_examples != client.test_examples) {
      return absl::FailedPreconditionError(absl::StrCat(
          "client '", client.id, "' has ", client.examples, " training and ", client.test_examples,
          " test examples, but joined this run with ", known.examples, " and ", known.test_examples,
          "; restore its data or start a new run"));
    }
    holder = places_[found->second].session;
  } else if (const auto found = holder_.find(client.id); found != holder_.end()) {
    holder = found->second;
  }
  if (holder == 0 || holder == session) return absl::OkStatus();
  if (sessions_.at(holder).instance == instance) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("client '", client.id,
                   "' is already connected from another process; stop that one, or give this "
                   "client another name"));
}

void Coordinator::Seat(SessionId id, Session& session) {
  session.indices.clear();
  for (size_t i = 0; i < session.clients.size(); ++i) {
    const ClientIndex index = index_.at(session.clients[i].id);
    session.indices.push_back(index);
    places_[index] = {id, static_cast<uint32_t>(i), absl::InfiniteFuture()};
  }
}

absl::Status Coordinator::Join(SessionId session, uint64_t instance,
                               std::vector<Enrolment> clients) {
  if (!frozen_ && joined_ >= expected_) Freeze();
  for (const Enrolment& client : clients) {
    LEEWAY_RETURN_IF_ERROR(CheckMember(session, instance, client));
  }
  // The same process again: its old stream is dead, whether or not we know it.
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    const SessionId old = it->first;
    const bool same = it->second.instance == instance && old != session;
    ++it;
    if (same) Leave(old, absl::InfiniteFuture());  // seated again below
  }
  Session& entry = sessions_[session];
  entry.instance = instance;
  entry.clients = std::move(clients);
  joined_ += CountClients(entry.clients);
  if (frozen_) {
    Seat(session, entry);
  } else {
    for (const Enrolment& client : entry.clients) holder_[client.id] = session;
  }
  return absl::OkStatus();
}

void Coordinator::Leave(SessionId session, absl::Time now) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  joined_ -= CountClients(found->second.clients);
  if (frozen_) {
    for (const ClientIndex index : found->second.indices) places_[index] = {0, 0, now};
  } else {
    for (const Enrolment& client : found->second.clients) holder_.erase(client.id);
  }
  sessions_.erase(found);
}

void Coordinator::Freeze() {
  if (frozen_) return;
  frozen_ = true;
  for (const auto& [id, session] : sessions_) {
    roster_.insert(roster_.end(), session.clients.begin(), session.clients.end());
  }
  std::sort(roster_.begin(), roster_.end(), [](const Enrolment& a, const Enrolment& b) {
    return std::make_pair(a.evaluator(), absl::string_view(a.id)) <
           std::make_pair(b.evaluator(), absl::string_view(b.id));
  });
  IndexRoster();
  for (auto& [id, session] : sessions_) Seat(id, session);
  holder_.clear();
}

std::vector<std::string> Coordinator::GoneAfter(absl::Time since) const {
  std::vector<std::string> gone;
  for (size_t i = 0; i < places_.size(); ++i) {
    if (places_[i].session == 0 && places_[i].gone_since > since) gone.push_back(roster_[i].id);
  }
  return gone;
}

std::vector<Enrolment> Coordinator::gathered() const {
  std::vector<Enrolment> all;
  for (const auto& [id, session] : sessions_) {
    all.insert(all.end(), session.clients.begin(), session.clients.end());
  }
  return all;
}

bool Coordinator::Quarantine(const std::string& client) {
  const auto index = index_.find(client);
  if (index == index_.end()) return false;
  const auto place = std::lower_bound(eligible_.begin(), eligible_.end(), index->second);
  if (place == eligible_.end() || *place != index->second) return false;
  eligible_.erase(place);
  return true;
}

void Coordinator::AddWork(ClientIndex index, uint32_t group,
                          std::map<SessionId, Assignment>& work) const {
  const Place& place = places_[index];
  if (place.session == 0) return;
  Assignment& assignment = work[place.session];
  assignment.session = place.session;
  assignment.clients.push_back(place.position);
  assignment.groups.push_back(group);
}

std::vector<Assignment> Coordinator::OpenRound(RoundSpec spec) {
  spec_ = std::move(spec);
  open_ = true;
  members_.clear();
  reports_ = 0;
  evaluations_ = 0;
  folding_ = 0;
  failed_ = 0;
  replaced_ = 0;
  next_reserve_ = 0;
  std::map<SessionId, Assignment> work;
  for (size_t i = 0; i < spec_.cohort.size(); ++i) {
    const ClientIndex index = spec_.cohort[i];
    const uint32_t group = spec_.groups.empty() ? 0 : spec_.groups[i];
    members_[index].group = group;
    places_[index].gone_since = std::min(places_[index].gone_since, spec_.opened);
    AddWork(index, group, work);
  }
  return Values(std::move(work));
}

bool Coordinator::IsAbsent(ClientIndex index) const {
  return places_[index].session == 0 && members_.at(index).state == MemberState::kWaiting;
}

std::vector<Assignment> Coordinator::Replace(absl::Time now) {
  std::map<SessionId, Assignment> work;
  if (!open_ || spec_.replace_after == absl::InfiniteDuration()) return {};
  const std::vector<ClientIndex> cohort = spec_.cohort;  // grows below
  for (const ClientIndex index : cohort) {
    if (!IsAbsent(index) || now < places_[index].gone_since + spec_.replace_after) continue;
    while (next_reserve_ < spec_.reserves.size() &&
           places_[spec_.reserves[next_reserve_]].session == 0) {
      ++next_reserve_;
    }
    if (next_reserve_ == spec_.reserves.size()) break;
    const ClientIndex reserve = spec_.reserves[next_reserve_++];
    const uint32_t group = members_.at(index).group;
    members_.at(index).state = MemberState::kReplaced;
    members_[reserve].group = group;
    spec_.cohort.push_back(reserve);
    ++failed_;
    ++replaced_;
    AddWork(reserve, group, work);
  }
  return Values(std::move(work));
}

absl::Time Coordinator::NextChange() const {
  absl::Time next = spec_.deadline;
  if (spec_.replace_after == absl::InfiniteDuration()) return next;
  if (next_reserve_ == spec_.reserves.size()) return next;
  for (const ClientIndex index : spec_.cohort) {
    if (IsAbsent(index)) next = std::min(next, places_[index].gone_since + spec_.replace_after);
  }
  return next;
}

Assignment Coordinator::WorkFor(SessionId session) const {
  Assignment assignment;
  assignment.session = session;
  const auto found = sessions_.find(session);
  if (!open_ || found == sessions_.end()) return assignment;
  const std::vector<ClientIndex>& indices = found->second.indices;
  for (size_t i = 0; i < indices.size(); ++i) {
    const auto member = members_.find(indices[i]);
    if (member == members_.end() || member->second.state != MemberState::kWaiting) continue;
    assignment.clients.push_back(static_cast<uint32_t>(i));
    assignment.groups.push_back(member->second.group);
  }
  return assignment;
}

bool Coordinator::IsIdle(uint64_t round, uint32_t attempt, const std::string& client) const {
  if (spec_.round != round || spec_.attempt != attempt) return false;
  const auto index = index_.find(client);
  if (index == index_.end()) return false;
  const SessionId session = places_[index->second].session;
  if (session == 0) return false;
  // Whichever are fewer: the clients of a process or those of the round.
  const std::vector<ClientIndex>& hosted = sessions_.at(session).indices;
  const std::vector<ClientIndex>& few = hosted.size() < spec_.cohort.size() ? hosted : spec_.cohort;
  if (few.size() > kMostLookedAt) return false;
  return absl::c_none_of(few, [&](ClientIndex i) {
    const auto member = members_.find(i);
    return places_[i].session == session && member != members_.end() &&
           (member->second.state == MemberState::kWaiting ||
            member->second.state == MemberState::kFolding);
  });
}

absl::Status Coordinator::CheckOpen(uint64_t round, uint32_t attempt) const {
  const auto asked = std::make_pair(round, attempt);
  const auto now = std::make_pair(spec_.round, spec_.attempt);
  if (open_ && asked == now) return absl::OkStatus();
#ifdef LEEWAY_MUTANT_ACCEPT_STALE  // a deliberate bug that tests must find
  if (open_ && asked < now) return absl::OkStatus();
#endif
  const std::string name = absl::StrCat("round ", round, " attempt ", attempt);
  if (asked > now) {
    return WithReason(
        absl::FailedPreconditionError(absl::StrCat(name, " is not open yet; wait for its order")),
        "future_round");
  }
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat(
          name, " is over: the report is too late; drop it and wait for the next order")),
      "late");
}

absl::StatusOr<Coordinator::ReportState> Coordinator::CheckReport(
    uint64_t round, uint32_t attempt, absl::Span<const std::string> clients, uint64_t digest,
    absl::Time now) const {
  LEEWAY_RETURN_IF_ERROR(CheckOpen(round, attempt));
  size_t replays = 0;
  absl::flat_hash_set<ClientIndex> named;
  named.reserve(clients.size());
  for (const std::string& id : clients) {
    const auto index = index_.find(id);
    const auto member = index == index_.end() ? members_.end() : members_.find(index->second);
    if (member == members_.end()) {
      return WithReason(absl::PermissionDeniedError(
                            absl::StrCat("client '", id, "' was not sampled in round ", round)),
                        "not_sampled");
    }
    if (!named.insert(member->first).second) {
      return WithReason(absl::InvalidArgumentError(absl::StrCat(
                            "client '", id, "' is named twice in one report; name it once")),
                        "named_twice");
    }
    if (member->second.state == MemberState::kFailed ||
        member->second.state == MemberState::kReplaced) {
      const bool replaced = member->second.state == MemberState::kReplaced;
      return WithReason(absl::FailedPreconditionError(absl::StrCat(
                            "client '", id, "' has lost its place in round ", round,
                            replaced ? ": it was away too long and another took it" : "",
                            "; wait for the next order")),
                        "lost_place");
    }
    if (member->second.state == MemberState::kWaiting) continue;
    if (member->second.digest != digest) {
      return WithReason(absl::AlreadyExistsError(
                            absl::StrCat("client '", id, "' has already reported in round ", round,
                                         " with other bytes; the first report stays")),
                        "other_bytes");
    }
    ++replays;
  }
  if (replays == clients.size()) return ReportState::kReplay;
  if (replays > 0) {
    return WithReason(
        absl::AlreadyExistsError("some of the clients in this report were already counted"),
        "other_bytes");
  }
  if (spec_.enough > 0 && reports_ + folding_ >= spec_.enough) {
    return WithReason(
        absl::FailedPreconditionError(absl::StrCat("round ", round, " has its ", spec_.enough,
                                                   " reports: this one is too late; drop it")),
        "late");
  }
  // Else reports that cannot count, one after the other, would keep the round open.
  if (now >= spec_.deadline) {
    return WithReason(absl::FailedPreconditionError(
                          absl::StrCat("round ", round,
                                       " is past its deadline: the report is too late; drop "
                                       "it and wait for the next order")),
                      "late");
  }
  return ReportState::kFold;
}

absl::StatusOr<Coordinator::ReportState> Coordinator::BeginReport(
    uint64_t round, uint32_t attempt, absl::Span<const std::string> clients, uint64_t digest,
    absl::Time now) {
  LEEWAY_ASSIGN_OR_RETURN(const ReportState state,
                          CheckReport(round, attempt, clients, digest, now));
#ifdef LEEWAY_MUTANT_COUNT_REPLAYS  // a deliberate bug that tests must find
  if (state == ReportState::kReplay) {
    folding_ += static_cast<uint32_t>(clients.size());
    return ReportState::kFold;
  }
#endif
  if (state == ReportState::kReplay) return state;
  for (const std::string& id : clients) {
    Member& member = members_.at(index_.at(id));
    member.state = MemberState::kFolding;
    member.digest = digest;
  }
  folding_ += static_cast<uint32_t>(clients.size());
  return state;
}

std::vector<GroupShare> Coordinator::SharesOf(absl::Span<const std::string> clients,
                                              bool by_examples, size_t groups) const {
  std::vector<GroupShare> shares(groups);
  for (const std::string& id : clients) {
    const ClientIndex index = index_.at(id);
    GroupShare& share = shares.at(members_.at(index).group);
    ++share.clients;
    share.weight += by_examples ? roster_[index].examples : 1;
    share.test_examples += roster_[index].test_examples;
  }
  return shares;
}

void Coordinator::EndReport(absl::Span<const std::string> clients, bool counted) {
  for (const std::string& id : clients) {
    const ClientIndex index = index_.at(id);
    if (counted && roster_[index].evaluator()) ++evaluations_;
    Member& member = members_.at(index);
    member.state = counted ? MemberState::kReported : MemberState::kWaiting;
  }
  const auto n = static_cast<uint32_t>(clients.size());
  folding_ -= n;
  if (counted) reports_ += n;
}

bool Coordinator::Fail(const std::string& client) {
  const auto index = index_.find(client);
  const auto member = index == index_.end() ? members_.end() : members_.find(index->second);
  if (!open_ || member == members_.end() || member->second.state != MemberState::kWaiting) {
    return false;
  }
  member->second.state = MemberState::kFailed;
  ++failed_;
  return true;
}

Coordinator::RoundState Coordinator::State(absl::Time now) const {
  if (folding_ > 0) return RoundState::kCollecting;
  const bool enough = spec_.enough > 0 && reports_ >= spec_.enough;
  if (!enough && reports_ + failed_ < spec_.cohort.size() && now < spec_.deadline) {
    return RoundState::kCollecting;
  }
  return reports() >= std::max<uint32_t>(spec_.minimum, 1) ? RoundState::kComplete
                                                           : RoundState::kShort;
}

std::vector<ClientIndex> Coordinator::CloseRound() {
  std::vector<ClientIndex> reported;
  for (const ClientIndex index : spec_.cohort) {
    if (members_.at(index).state == MemberState::kReported) reported.push_back(index);
  }
  std::sort(reported.begin(), reported.end());
  open_ = false;
  return reported;
}

}  // namespace leeway
