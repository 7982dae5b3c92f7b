#include "server/roster.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace leeway {
namespace {

uint32_t CountClients(const std::vector<Enrolment>& enrolled) {
  return static_cast<uint32_t>(std::count_if(enrolled.begin(), enrolled.end(),
                                             [](const Enrolment& e) { return !e.evaluator(); }));
}

}  // namespace

Roster::Roster(std::vector<Enrolment> clients, absl::Time now)
    : expected_(CountClients(clients)), frozen_(true), clients_(std::move(clients)) {
  IndexClients(now);
}

void Roster::IndexClients(absl::Time gone_since) {
  hosts_.resize(clients_.size(), {.gone_since = gone_since});
  population_ = CountClients(clients_);
  eligible_.resize(population_);
  std::iota(eligible_.begin(), eligible_.end(), ClientIndex{0});
  for (size_t i = 0; i < clients_.size(); ++i) {
    index_[clients_[i].id] = static_cast<ClientIndex>(i);
  }
}

absl::Status Roster::CheckMember(SessionId session, uint64_t instance,
                                 const Enrolment& client) const {
  SessionId holder = 0;
  if (frozen_) {
    const std::optional<ClientIndex> found = Find(client.id);
    if (!found) {
      return absl::FailedPreconditionError(
          absl::StrCat("client '", client.id, "' is not one of the ", clients_.size(),
                       " clients this run started with; start a new run to include it"));
    }
    const Enrolment& known = clients_[*found];
    if (known.examples != client.examples || known.test_examples != client.test_examples) {
      return absl::FailedPreconditionError(absl::StrCat(
          "client '", client.id, "' has ", client.examples, " training and ", client.test_examples,
          " test examples, but joined this run with ", known.examples, " and ", known.test_examples,
          "; restore its data or start a new run"));
    }
    holder = hosts_[*found].session;
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

void Roster::SetHosts(SessionId id, Session& session) {
  session.indices.clear();
  for (size_t i = 0; i < session.clients.size(); ++i) {
    const ClientIndex index = index_.at(session.clients[i].id);
    session.indices.push_back(index);
    hosts_[index] = {id, static_cast<uint32_t>(i), absl::InfiniteFuture()};
  }
}

absl::Status Roster::Join(SessionId session, uint64_t instance, std::vector<Enrolment> clients,
                          absl::Time now) {
  if (!frozen_ && joined_ >= expected_) Freeze();
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
  joined_ += CountClients(entry.clients);
  if (frozen_) {
    SetHosts(session, entry);
  } else {
    for (const Enrolment& client : entry.clients) holder_[client.id] = session;
  }
  return absl::OkStatus();
}

void Roster::Leave(SessionId session, absl::Time now) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  joined_ -= CountClients(found->second.clients);
  if (frozen_) {
    for (const ClientIndex index : found->second.indices) hosts_[index] = {0, 0, now};
  } else {
    for (const Enrolment& client : found->second.clients) holder_.erase(client.id);
  }
  sessions_.erase(found);
}

void Roster::Freeze() {
  if (frozen_) return;
  frozen_ = true;
  clients_ = gathered();
  std::sort(clients_.begin(), clients_.end(), [](const Enrolment& a, const Enrolment& b) {
    return std::make_pair(a.evaluator(), absl::string_view(a.id)) <
           std::make_pair(b.evaluator(), absl::string_view(b.id));
  });
  IndexClients(absl::InfiniteFuture());
  for (auto& [id, session] : sessions_) SetHosts(id, session);
  holder_.clear();
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

std::vector<std::string> Roster::GoneAfter(absl::Time since) const {
  std::vector<std::string> gone;
  for (size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].session == 0 && hosts_[i].gone_since > since) gone.push_back(clients_[i].id);
  }
  return gone;
}

std::vector<Enrolment> Roster::gathered() const {
  std::vector<Enrolment> all;
  for (const auto& [id, session] : sessions_) {
    all.insert(all.end(), session.clients.begin(), session.clients.end());
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
    if (standing.client >= clients_.size()) continue;
    if (standing.quarantined) Quarantine(clients_[standing.client].id);
    standings_[standing.client] = standing;
  }
}

}  // namespace leeway
