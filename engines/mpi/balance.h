// Balance: which rank computes which client of an order, so that no rank waits for another. It
// goes by examples at first and by measured times then (client/cost_book.h). Kept by rank 0.
#ifndef LEEWAY_ENGINES_MPI_BALANCE_H_
#define LEEWAY_ENGINES_MPI_BALANCE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "client/cost_book.h"

namespace leeway {

class Balance {
 public:
  struct Client {
    uint64_t examples = 0;
    int host = 0;          // the rank that joined with it
    bool movable = false;  // others can load its data, too
  };
  // What an order took.
  struct Times {
    std::vector<double> seconds;  // of each client
    double loading = 0;           // of clients that had moved, in seconds,
    size_t loaded = 0;            // so many
  };

  Balance(std::vector<Client> clients, int ranks);

  // For each of an order's clients the rank that is to compute it. `at_host`: the one that
  // joined with it, which keeps its state.
  std::vector<int> Assign(absl::Span<const uint32_t> clients, bool at_host) const;
  // Those clients were computed there.
  void Add(absl::Span<const uint32_t> clients, absl::Span<const int> assigned, const Times& times);

 private:
  double Cost(uint32_t client) const { return costs_.Cost(client, clients_[client].examples); }

  const std::vector<Client> clients_;
  const int ranks_;
  bool any_movable_ = false;
  std::vector<int> homes_;  // by client: the rank that has its data in memory
  CostBook costs_;
  double seconds_per_cost_ = 0;  // in the last order; 0: not known
  double loading_ = 0;           // all clients that were loaded took this long,
  double loaded_ = 0;            // so many
};

}  // namespace leeway

#endif  // LEEWAY_ENGINES_MPI_BALANCE_H_
