// Finds the nine deciles over clients of a number of which only "is it above t?" is asked, for
// many t at a time: counts are sums, so that no client's own figure is sent. Every search takes
// kRounds rounds. A value.
#ifndef LEEWAY_SERVER_DECILE_SEARCH_H_
#define LEEWAY_SERVER_DECILE_SEARCH_H_

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "records/who_pays.h"

namespace leeway {

class DecileSearch {
 public:
  static constexpr int kRounds = static_cast<int>(kWhoPaysRounds);

  // For numbers of any size up to `largest`, of either sign: the first thresholds are as dense
  // near 0 as their own size, down to a part of 1e-17.
  static DecileSearch OfAnySize(double largest);
  // For numbers from -largest to largest: the first thresholds are equally spaced.
  static DecileSearch OfRange(double largest);

  bool done() const { return rounds_ >= kRounds; }
  // What to ask, increasing; every client that answers at all is above the first.
  std::vector<double> thresholds() const;
  // How many clients are above each of them.
  void Narrow(absl::Span<const double> above);

  // Clients that answered, and those whose number is above and below 0; after the first round.
  uint32_t clients() const { return clients_; }
  uint32_t above_zero() const { return above_zero_; }
  uint32_t below_zero() const { return below_zero_; }
  // The 10th, 20th, ... 90th percentile: the k-th smallest of n, k = ceil(p n). Empty if nobody
  // answered.
  std::vector<double> deciles() const;

  // All but the first thresholds, which come from the constructor.
  std::vector<double> Save() const;
  absl::Status Restore(absl::Span<const double> state);
  static constexpr size_t kSavedSize = 4 + 2 * 9;

 private:
  static constexpr size_t kDeciles = 9;
  // The decile is above `low` and at most `high`; it is `high` if they are equal.
  struct Cell {
    double low = 0;
    double high = 0;
    bool open() const { return low < high; }
    bool operator==(const Cell&) const = default;
  };

  explicit DecileSearch(const std::vector<double>& positive);
  void FirstCells(absl::Span<const double> asked, absl::Span<const double> above);

  std::vector<double> first_;  // thresholds
  int rounds_ = 0;
  uint32_t clients_ = 0;
  uint32_t above_zero_ = 0;
  uint32_t below_zero_ = 0;
  std::array<Cell, kDeciles> cells_;
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_DECILE_SEARCH_H_
