#include "server/roster.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"

namespace leeway {
namespace {

uint32_t CountClients(const std::vector<Enrolment>& enrolled) {
  return static_cast<uint32_t>(std::count_if(enrolled.begin(), enrolled.end(),
                                             [](const Enrolment& e) { return !e.evaluator(); }));
}

void SortByName(std::vector<Enrolment>& enrolled) {
  std::sort(enrolled.begin(), enrolled.end(), [](const Enrolment& a, const Enrolment& b) {
    return std::make_pair(a.evaluator(), absl::string_view(a.id)) <
           std::make_pair(b.evaluator(), absl::string_view(b.id));
  });
}

}  // namespace

Roster::Roster(std::vector<Enrolment> clients, absl::Time now, uint32_t epoch,
               absl::Span<const ClientIndex> away, bool closed)
    : expected_(CountClients(clients)), closed_(closed), epoch_(epoch) {
  clients_ = std::move(clients);
  hosts_.resize(clients_.size(), {.gone_since = now});
  present_.resize(clients_.size(), true);
  for (const ClientIndex index : away) present_[index] = false;
  for (size_t i = 0; i < clients_.size(); ++i) {
    index_[clients_[i].id] = static_cast<ClientIndex>(i);
  }
  Count();
}

void Roster::Count() {
  population_ = 0;
  examples_ = 0;
  eligible_.clear();
  for (size_t i = 0; i < clients_.size(); ++i) {
    bool present = present_[i];
#ifdef LEEWAY_MUTANT_DRAW_ABSENT  // a deliberate bug that tests must find
    present = true;
#endif
    if (!present || clients_[i].evaluator()) continue;
    const auto index = static_cast<ClientIndex>(i);
    ++population_;
    examples_ += clients_[i].examples;
    const auto standing = standings_.find(index);
    if (standing == standings_.end() || !standing->second.quarantined) eligible_.push_back(index);
  }
  waiting_ = 0;
  for (const auto& [id, session] : sessions_) {
    for (const ClientIndex index : session.indices) {
      if (index == kNoIndex || !present_[index]) ++waiting_;
    }
  }
}

absl::Status Roster::CheckKnown(const Enrolment& client, const Enrolment& known) const {
  constexpr char kRemedy[] = "; restore its data, give it another name or start a new run";
  if (known.examples != client.examples || known.test_examples != client.test_examples) {
    return absl::FailedPreconditionError(
        absl::StrCat("client '", client.id, "' has ", client.examples, " training and ",
                     client.test_examples, " test examples, but joined this run with ",
                     known.examples, " and ", known.test_examples, kRemedy));
  }
  if (known.digest == client.digest || known.digest == 0 || client.digest == 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrFormat(
      "client '%s' has other data than it joined this run with (digest %08x, it was %08x)%s",
      client.id, client.digest >> 32, known.digest >> 32, kRemedy));
}

absl::Status Roster::CheckMember(SessionId session, uint64_t instance,
                                 const Enrolment& client) const {
  SessionId holder = 0;
  if (const std::optional<ClientIndex> found = Find(client.id)) {
    LEEWAY_RETURN_IF_ERROR(CheckKnown(client, clients_[*found]));
    holder = hosts_[*found].session;
  } else if (const auto newcomer = newcomers_.find(client.id); newcomer != newcomers_.end()) {
    holder = newcomer->second;
  } else if (closed_ && ready()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "client '", client.id, "' is not one of the ", epoch_ > 0 ? clients_.size() : expected_,
        " clients this run started with, and cohort.closed is set; start a new run to include "
        "it"));
  }
  if (holder == 0 || holder == session) return absl::OkStatus();
  if (sessions_.at(holder).instance == instance) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("client '", client.id,
                   "' is already connected from another process; stop that one, or give this "
                   "client another name"));
}

void Roster::SetHosts(SessionId id, Session& session) {
  session.indices.assign(session.clients.size(), kNoIndex);
  for (size_t i = 0; i < session.clients.size(); ++i) {
    const std::optional<ClientIndex> index = Find(session.clients[i].id);
    if (!index) {
      newcomers_[session.clients[i].id] = id;
      continue;
    }
    session.indices[i] = *index;
    if (!connected(*index)) ++connected_;
    hosts_[*index] = {id, static_cast<uint32_t>(i), absl::InfiniteFuture()};
  }
}

absl::Status Roster::Join(SessionId session, uint64_t instance, std::vector<Enrolment> clients,
                          absl::Time now, std::string shape) {
  for (const Enrolment& client : clients) {
    LEEWAY_RETURN_IF_ERROR(CheckMember(session, instance, client));
  }
  // The same process again: its old stream is dead, whether or not we know it.
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    const SessionId old = it->first;
    const bool same = it->second.instance == instance && old != session;
    ++it;
    if (same) Leave(old, now);  // its clients get their new host below
  }
  Session& entry = sessions_[session];
  entry.instance = instance;
  entry.clients = std::move(clients);
  entry.shape = std::move(shape);
  joined_ += CountClients(entry.clients);
  SetHosts(session, entry);
  for (const ClientIndex index : entry.indices) {
    if (index == kNoIndex || !present_[index]) ++waiting_;
  }
#ifdef LEEWAY_MUTANT_ENTER_MID_ROUND  // a deliberate bug that tests must find
  if (epoch_ > 0 && waiting_ > 0) BeginEpoch(NextEpoch(now, absl::InfiniteDuration(), 0));
#endif
  return absl::OkStatus();
}

void Roster::Leave(SessionId session, absl::Time now) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  const Session& gone = found->second;
  joined_ -= CountClients(gone.clients);
  for (size_t i = 0; i < gone.clients.size(); ++i) {
    const ClientIndex index = gone.indices[i];
    if (index == kNoIndex || !present_[index]) --waiting_;
    if (index == kNoIndex) {
      newcomers_.erase(gone.clients[i].id);
    } else {
      hosts_[index] = {0, 0, now};
      --connected_;
    }
  }
  sessions_.erase(found);
}

std::string Roster::CommonShape() const {
  struct Votes {
    size_t clients = 0;
    absl::string_view first;  // name
  };
  std::map<absl::string_view, Votes> shapes;
  for (const auto& [id, session] : sessions_) {
    Votes& votes = shapes[session.shape];
    for (const Enrolment& client : session.clients) {
      if (votes.clients++ == 0 || client.id < votes.first) votes.first = client.id;
    }
  }
  const auto best =
      std::max_element(shapes.begin(), shapes.end(), [](const auto& a, const auto& b) {
        if (a.second.clients != b.second.clients) return a.second.clients < b.second.clients;
        return a.second.first > b.second.first;
      });
  return best == shapes.end() ? "" : std::string(best->first);
}

std::vector<Roster::OddSession> Roster::SessionsWithout(absl::string_view shape) const {
  std::vector<OddSession> others;
  for (const auto& [id, session] : sessions_) {
    if (session.shape != shape) others.push_back({id, session.shape, session.clients.front().id});
  }
  return others;
}

bool Roster::IsAway(ClientIndex client, absl::Time now, absl::Duration absent_after) const {
  return !connected(client) && hosts_[client].gone_since + absent_after <= now;
}

EpochChange Roster::NextEpoch(absl::Time now, absl::Duration absent_after, uint32_t fewest) const {
  EpochChange change;
  const bool all_here = connected_ == clients_.size() || absent_after == absl::InfiniteDuration();
  if (waiting_ == 0 && all_here) return change;  // as before nearly every round
  change.entered = Newcomers();
  SortByName(change.entered);
  uint32_t stay = CountClients(change.entered);
  for (size_t i = 0; i < clients_.size(); ++i) {
    const auto index = static_cast<ClientIndex>(i);
    const bool leaves = present_[i] && !all_here && IsAway(index, now, absent_after);
    if (leaves) change.left.push_back(index);
    if (!present_[i] && connected(index)) change.returned.push_back(index);
    if (!clients_[i].evaluator() && !leaves && (present_[i] || connected(index))) ++stay;
  }
  if (stay < std::max(fewest, 1u)) change.left.clear();
  return change;
}

absl::StatusOr<EpochChange> Roster::FollowPlan(const PlannedEpoch& plan) const {
  EpochChange change;
  absl::flat_hash_set<absl::string_view> entering;
  for (const std::string& name : plan.entered) {
    const std::optional<ClientIndex> index = Find(name);
    if (index ? !connected(*index) : !newcomers_.contains(name)) {
      return absl::UnavailableError(absl::StrCat("client '", name, "' has not joined"));
    }
    if (!index) entering.insert(name);
    if (index && !present_[*index]) change.returned.push_back(*index);
  }
  for (Enrolment& newcomer : Newcomers()) {
    if (entering.contains(newcomer.id)) change.entered.push_back(std::move(newcomer));
  }
  SortByName(change.entered);
  std::sort(change.returned.begin(), change.returned.end());
  for (const std::string& name : plan.left) {
    const std::optional<ClientIndex> index = Find(name);
    if (index && present_[*index]) change.left.push_back(*index);
  }
  std::sort(change.left.begin(), change.left.end());
  return change;
}

void Roster::BeginEpoch(const EpochChange& change) {
  ++epoch_;
  for (const Enrolment& client : change.entered) {
    index_[client.id] = static_cast<ClientIndex>(clients_.size());
    newcomers_.erase(client.id);
    clients_.push_back(client);
    hosts_.emplace_back();
    present_.push_back(true);
  }
#ifdef LEEWAY_MUTANT_MOVE_INDICES  // a deliberate bug that tests must find
  SortByName(clients_);
  for (size_t i = 0; i < clients_.size(); ++i) index_[clients_[i].id] = static_cast<uint32_t>(i);
#endif
  for (const ClientIndex index : change.returned) present_[index] = true;
  for (const ClientIndex index : change.left) present_[index] = false;
  if (!change.entered.empty()) {
    for (auto& [id, session] : sessions_) SetHosts(id, session);
  }
  Count();
}

std::vector<ClientIndex> Roster::Evaluators() const {
  std::vector<ClientIndex> evaluators;
  for (size_t i = 0; i < clients_.size(); ++i) {
    if (present_[i] && clients_[i].evaluator()) evaluators.push_back(static_cast<ClientIndex>(i));
  }
  return evaluators;
}

std::optional<ClientIndex> Roster::Find(absl::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) return std::nullopt;
  return found->second;
}

absl::Span<const ClientIndex> Roster::HostedBy(SessionId session) const {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return {};
  return found->second.indices;
}

absl::Span<const Enrolment> Roster::EnrolledBy(SessionId session) const {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return {};
  return found->second.clients;
}

std::vector<std::string> Roster::GoneAfter(absl::Time since) const {
  std::vector<std::string> gone;
  for (size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].session == 0 && hosts_[i].gone_since > since) gone.push_back(clients_[i].id);
  }
  return gone;
}

std::vector<Enrolment> Roster::Newcomers() const {
  std::vector<Enrolment> all;
  if (newcomers_.empty()) return all;
  for (const auto& [id, session] : sessions_) {
    for (size_t i = 0; i < session.clients.size(); ++i) {
      if (session.indices[i] == kNoIndex) all.push_back(session.clients[i]);
    }
  }
  return all;
}

uint32_t Roster::CountRefused(absl::string_view client) {
  const std::optional<ClientIndex> index = Find(client);
  if (!index) return 0;
  Standing& standing = standings_[*index];
  standing.client = *index;
  return ++standing.refused;
}

void Roster::CountAccepted(ClientIndex client) {
  const auto found = standings_.find(client);
  if (found != standings_.end() && !found->second.quarantined) standings_.erase(found);
}

bool Roster::Quarantine(absl::string_view client) {
  const std::optional<ClientIndex> index = Find(client);
  if (!index) return false;
  const auto place = std::lower_bound(eligible_.begin(), eligible_.end(), *index);
  if (place == eligible_.end() || *place != *index) return false;
  eligible_.erase(place);
  Standing& standing = standings_[*index];
  standing.client = *index;
  standing.quarantined = true;
  return true;
}

void Roster::CountIn(uint64_t round, absl::Span<const ClientIndex> clients) {
  for (const ClientIndex client : clients) last_counted_[client] = round;
}

std::vector<Standing> Roster::standings() const {
  std::vector<Standing> all;
  for (const auto& [index, standing] : standings_) all.push_back(standing);
  return all;
}

void Roster::Restore(absl::Span<const Standing> standings) {
  for (const Standing& standing : standings) {
    if (standing.client < clients_.size()) standings_[standing.client] = standing;
  }
  Count();
}

}  // namespace leeway
