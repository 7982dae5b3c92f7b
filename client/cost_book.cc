#include "client/cost_book.h"

#include <algorithm>

namespace leeway {
namespace {

// A client that was interrupted once is not held to be slow for ever, nor one to be free whose
// time was counted to its neighbour.
constexpr double kMostRatio = 16;
// Weight of the newest time.
constexpr double kNewest = 0.5;

}  // namespace

double CostBook::Cost(uint32_t client, uint64_t examples) const {
  const double ratio = client < ratios_.size() && ratios_[client] > 0 ? ratios_[client] : 1;
  return ratio * static_cast<double>(std::max<uint64_t>(examples, 1));
}

void CostBook::Add(absl::Span<const Timed> order) {
  double seconds = 0;
  double cost = 0;
  uint32_t last = 0;
  for (const Timed& one : order) {
    if (!(one.seconds > 0)) continue;
    seconds += one.seconds;
    cost += Cost(one.client, one.examples);
    last = std::max(last, one.client);
  }
  if (!(seconds > 0)) return;
  if (last >= ratios_.size()) ratios_.resize(last + size_t{1});
  for (const Timed& one : order) {
    if (!(one.seconds > 0)) continue;
    const double expected =
        static_cast<double>(std::max<uint64_t>(one.examples, 1)) * seconds / cost;
    const double now = std::clamp(one.seconds / expected, 1 / kMostRatio, kMostRatio);
    float& ratio = ratios_[one.client];
    ratio = static_cast<float>(ratio > 0 ? kNewest * now + (1 - kNewest) * ratio : now);
  }
}

double IdleShare(absl::Span<const double> costs, absl::Span<const int> assigned, int workers) {
  std::vector<double> load(static_cast<size_t>(workers));
  double total = 0;
  for (size_t i = 0; i < costs.size(); ++i) {
    load[static_cast<size_t>(assigned[i])] += costs[i];
    total += costs[i];
  }
  const double longest = *std::max_element(load.begin(), load.end());
  return longest > 0 ? 1 - total / (longest * static_cast<double>(workers)) : 0;
}

}  // namespace leeway
