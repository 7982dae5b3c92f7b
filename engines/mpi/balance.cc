#include "engines/mpi/balance.h"

#include <utility>

#include "engines/mpi/shares.h"

namespace leeway {
namespace {

// What it takes to load a client, before any was.
constexpr double kFirstLoading = 0.002;

}  // namespace

Balance::Balance(std::vector<Client> clients, int ranks)
    : clients_(std::move(clients)), ranks_(ranks) {
  for (const Client& client : clients_) {
    homes_.push_back(client.host);
    any_movable_ = any_movable_ || client.movable;
  }
}

std::vector<int> Balance::Assign(absl::Span<const uint32_t> clients, bool at_host) const {
  std::vector<int> homes;
  std::vector<double> costs;
  homes.reserve(clients.size());
  // Until something was timed, nobody knows whether moving is worth its cost.
  const bool stay = at_host || !any_movable_ || seconds_per_cost_ == 0 || ranks_ < 2;
  for (const uint32_t client : clients) {
    if (stay) {
      homes.push_back(at_host ? clients_[client].host : homes_[client]);
    } else {
      homes.push_back(clients_[client].movable ? homes_[client] : -1 - homes_[client]);
      costs.push_back(Cost(client));
    }
  }
  if (stay) return homes;
  const double loading = loaded_ > 0 ? loading_ / loaded_ : kFirstLoading;
  return AssignOrder(costs, homes, loading / seconds_per_cost_, ranks_);
}

void Balance::Add(absl::Span<const uint32_t> clients, absl::Span<const int> assigned,
                  const Times& times) {
  if (!any_movable_) return;
  std::vector<CostBook::Timed> timed;
  timed.reserve(clients.size());
  double seconds = 0;
  double cost = 0;
  for (size_t i = 0; i < clients.size(); ++i) {
    const uint32_t client = clients[i];
    if (clients_[client].movable) homes_[client] = assigned[i];
    timed.push_back({client, clients_[client].examples, times.seconds[i]});
    seconds += times.seconds[i];
    cost += Cost(client);
  }
  if (seconds > 0) seconds_per_cost_ = seconds / cost;
  costs_.Add(timed);
  loading_ += times.loading;
  loaded_ += static_cast<double>(times.loaded);
}

}  // namespace leeway
