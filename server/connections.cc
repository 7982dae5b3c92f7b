#include "server/connections.h"

#include <algorithm>

namespace leeway {
namespace {

// For the run's files, the dashboard, gRPC's own and whatever else the process opens.
constexpr uint64_t kOtherFiles = 256;
// Where files would allow more. An idle connection takes some 25 kB once gRPC has it.
constexpr uint64_t kMost = 8192;
constexpr size_t kMostIdle = 1024;

}  // namespace

Connections::Limits Connections::Limits::ForFiles(uint64_t files) {
  Limits limits;
  const uint64_t left = files > kOtherFiles ? files - kOtherFiles : 0;
  limits.all = std::clamp<uint64_t>(left / 2, 8, kMost);
  limits.idle = std::min(kMostIdle, limits.all / 2);
  limits.idle_per_address = limits.idle / 2;
  return limits;
}

std::optional<Connections::Id> Connections::Add(Id id, const std::string& address) {
  std::optional<Id> closed;
  const auto same = idle_by_address_.find(address);
  if (all_.size() >= limits_.all) {
    if (idle_ == 0) return id;
    closed = Expendable();
  } else if (!address.empty() && same != idle_by_address_.end() &&
             same->second.size() >= limits_.idle_per_address) {
    closed = same->second.front();
  } else if (!address.empty() && idle_ >= limits_.idle) {
    closed = Expendable();
  }
  if (closed) Remove(*closed);
  Connection& connection = all_[id];
  connection.address = address;
  connection.busy = address.empty();
  if (!connection.busy) Enqueue(id, connection);
  return closed;
}

void Connections::Remove(Id id) {
  const auto found = all_.find(id);
  if (found == all_.end()) return;
  if (!found->second.busy) Dequeue(found->second);
  all_.erase(found);
}

void Connections::SetBusy(Id id, bool busy) {
  const auto found = all_.find(id);
  if (found == all_.end() || found->second.busy == busy) return;
  Connection& connection = found->second;
  connection.busy = busy;
  if (busy) {
    Dequeue(connection);
  } else {
    Enqueue(id, connection);
  }
}

void Connections::Enqueue(Id id, Connection& connection) {
  std::list<Id>& queue = idle_by_address_[connection.address];
  connection.place = queue.insert(queue.end(), id);
  ++idle_;
}

void Connections::Dequeue(const Connection& connection) {
  const auto queue = idle_by_address_.find(connection.address);
  queue->second.erase(connection.place);
  if (queue->second.empty()) idle_by_address_.erase(queue);
  --idle_;
}

Connections::Id Connections::Expendable() const {
  return std::max_element(
             idle_by_address_.begin(), idle_by_address_.end(),
             [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); })
      ->second.front();
}

}  // namespace leeway
