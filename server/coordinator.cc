#include "server/coordinator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace leeway {
namespace {

uint32_t CountClients(const std::vector<Enrolment>& enrolled) {
  return static_cast<uint32_t>(std::count_if(enrolled.begin(), enrolled.end(),
                                             [](const Enrolment& e) { return !e.evaluator(); }));
}

}  // namespace

Coordinator::Coordinator(std::vector<Enrolment> roster)
    : expected_(CountClients(roster)),
      frozen_(true),
      roster_(std::move(roster)),
      places_(roster_.size()) {
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
    places_[index] = {id, static_cast<uint32_t>(i)};
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
    if (same) Leave(old);
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

void Coordinator::Leave(SessionId session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  joined_ -= CountClients(found->second.clients);
  if (frozen_) {
    for (const ClientIndex index : found->second.indices) places_[index] = {};
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
  places_.resize(roster_.size());
  for (size_t i = 0; i < roster_.size(); ++i) index_[roster_[i].id] = static_cast<ClientIndex>(i);
  for (auto& [id, session] : sessions_) Seat(id, session);
  holder_.clear();
}

uint32_t Coordinator::population() const { return CountClients(roster_); }

std::vector<Enrolment> Coordinator::gathered() const {
  std::vector<Enrolment> all;
  for (const auto& [id, session] : sessions_) {
    all.insert(all.end(), session.clients.begin(), session.clients.end());
  }
  return all;
}

std::vector<Assignment> Coordinator::OpenRound(RoundSpec spec) {
  spec_ = std::move(spec);
  open_ = true;
  members_.clear();
  reports_ = 0;
  evaluations_ = 0;
  folding_ = 0;
  failed_ = 0;
  std::map<SessionId, Assignment> work;
  for (size_t i = 0; i < spec_.cohort.size(); ++i) {
    const ClientIndex index = spec_.cohort[i];
    const uint32_t group = spec_.groups.empty() ? 0 : spec_.groups[i];
    members_[index].group = group;
    const Place& place = places_[index];
    if (place.session == 0) continue;
    Assignment& assignment = work[place.session];
    assignment.session = place.session;
    assignment.clients.push_back(place.position);
    assignment.groups.push_back(group);
  }
  std::vector<Assignment> all;
  all.reserve(work.size());
  for (auto& [session, assignment] : work) all.push_back(std::move(assignment));
  return all;
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

absl::StatusOr<Coordinator::ReportState> Coordinator::BeginReport(
    uint64_t round, uint32_t attempt, absl::Span<const std::string> clients, uint64_t digest) {
  if (!open_ || round > spec_.round || (round == spec_.round && attempt > spec_.attempt)) {
    return absl::FailedPreconditionError(
        absl::StrCat("round ", round, " attempt ", attempt, " is not open; wait for its order"));
  }
  if (round < spec_.round || attempt < spec_.attempt) {
    return absl::FailedPreconditionError(absl::StrCat("round ", round, " attempt ", attempt,
                                                      " is over; round ", spec_.round, " attempt ",
                                                      spec_.attempt, " is open"));
  }
  size_t replays = 0;
  std::vector<Member*> waiting;
  for (const std::string& id : clients) {
    const auto index = index_.find(id);
    const auto member = index == index_.end() ? members_.end() : members_.find(index->second);
    if (member == members_.end()) {
      return absl::PermissionDeniedError(
          absl::StrCat("client '", id, "' was not sampled in round ", round));
    }
    if (member->second.state == MemberState::kFailed) {
      return absl::FailedPreconditionError(
          absl::StrCat("client '", id, "' has lost its place in round ", round));
    }
    if (member->second.state == MemberState::kWaiting) {
      waiting.push_back(&member->second);
    } else if (member->second.digest != digest) {
      return absl::AlreadyExistsError(absl::StrCat(
          "client '", id, "' has already reported in round ", round, " with other bytes"));
    } else {
      ++replays;
    }
  }
  if (replays == clients.size()) return ReportState::kReplay;
  if (replays > 0) {
    return absl::AlreadyExistsError("some of the clients in this report were already counted");
  }
  for (Member* member : waiting) {
    if (member->state == MemberState::kFolding) {
      // Named twice: undo, the report is malformed.
      for (Member* undo : waiting) undo->state = MemberState::kWaiting;
      return absl::InvalidArgumentError("a client is named twice in one report");
    }
    member->state = MemberState::kFolding;
    member->digest = digest;
  }
  folding_ += static_cast<uint32_t>(clients.size());
  return ReportState::kFold;
}

uint64_t Coordinator::WeightOf(absl::Span<const std::string> clients, bool by_examples) const {
  if (!by_examples) return clients.size();
  uint64_t weight = 0;
  for (const std::string& id : clients) weight += roster_[index_.at(id)].examples;
  return weight;
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
  if (reports_ + failed_ < spec_.cohort.size() && now < spec_.deadline) {
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
