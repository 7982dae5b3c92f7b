#include "server/median_limit.h"

#include <algorithm>
#include <cmath>

namespace leeway {
namespace {

// In the first round: up to the norm of a vector of 2^22 coordinates that are all max_update.
constexpr int kSmallestPower = -40;
constexpr int kLargestPower = 11;

// In later rounds: so many steps on either side of the last median.
constexpr int kStepsAside = 4;           // of 2^(1/4)
constexpr int kAutomaticStepsAside = 1;  // of 2
constexpr double kStep = 0.25;
constexpr double kAutomaticStep = 1;

// The automatic multiple, and how far above the lowest median its base may be. In the runs that
// we have tried, no honest client was at 20 medians.
constexpr double kLeastMultiple = 30;
constexpr double kNarrowest = 0.2;
constexpr double kGrowth = 2;

// What is scaled down to the limit ends up within rounding of it.
constexpr double kAtLimit = 1 - 1e-6;

// Of fewer clients the median says little: two that are near the optimum would limit a third.
constexpr uint64_t kFewestClients = 5;

// A short encoding may make a vector longer by this factor (common/wire.cc).
constexpr double kRounding = 1.15;

// Threshold and number of clients above it, of every count that a task asks for.
struct Count {
  double threshold;
  double above;
};

std::vector<Count> CountsOf(const v1::Task& task, const Tally& tally) {
  std::vector<Count> counts;
  size_t number = 0;
  for (const v1::Sum& sum : task.sums()) {
    if (sum.shape() != v1::NUMBER) continue;
    if (sum.name() == kDisplacementAbove) {
      counts.push_back({sum.threshold(), std::round(tally.number(number))});
    }
    ++number;
  }
  return counts;
}

}  // namespace

MedianLimit::MedianLimit(double multiple, double max_update)
    : multiple_(multiple), smallest_(std::ldexp(max_update, kSmallestPower)) {}

std::vector<double> MedianLimit::Thresholds() const {
  std::vector<double> thresholds;
  if (median_ == 0) {
    for (int k = 0; k <= kLargestPower - kSmallestPower; ++k) {
      thresholds.push_back(std::ldexp(smallest_, k));
    }
    return thresholds;
  }
  const int aside = automatic() ? kAutomaticStepsAside : kStepsAside;
  const double step = automatic() ? kAutomaticStep : kStep;
  for (int k = -aside; k <= aside; ++k) thresholds.push_back(median_ * std::exp2(step * k));
  return thresholds;
}

void MedianLimit::Ask(v1::Task& task) const {
  std::vector<double> thresholds = Thresholds();
  // How many are above the last of them is only of interest in the first round (IsExceeded).
  if (automatic() && median_ > 0) thresholds.pop_back();
  for (const double threshold : thresholds) AskAbove(kDisplacementAbove, threshold, task);
  if (median_ == 0) return;
  task.set_max_norm(limit());
  task.set_clip(true);
  AskAbove(kDisplacementAbove, limit() * kAtLimit, task);
}

void MedianLimit::Absorb(const v1::Task& task, const Tally& tally) {
  const std::vector<double> thresholds = Thresholds();
  const std::vector<Count> counts = CountsOf(task, tally);
  if (counts.size() + 1 < thresholds.size()) return;
  if (tally.clients() < kFewestClients) {
    Forget();
    return;
  }
  // The first threshold that fewer than half of the clients are above: of an even number the
  // upper median.
  size_t k = 0;
  while (k + 1 < thresholds.size() && 2 * counts[k].above >= static_cast<double>(tally.clients())) {
    ++k;
  }
  median_ = std::max(thresholds[k], smallest_);
  if (first_ == 0) first_ = median_;
  lowest_ = lowest_ == 0 ? median_ : std::min(lowest_, median_);
  width_ = Clipped(task, tally) > 0 ? std::max(width_ / 2, kNarrowest) : std::min(2 * width_, 1.0);
  const double base = std::min(median_, width_ < 1 ? lowest_ : kGrowth * lowest_);
  limit_ = automatic() ? std::max(Multiple(tally.clients()) * base, first_) : multiple_ * median_;
}

double MedianLimit::Multiple(uint64_t reports) const {
  return width_ * std::max(kLeastMultiple, static_cast<double>(reports));
}

bool MedianLimit::IsExceeded(const v1::Task& task, const Tally& tally, double largest_norm) const {
  if (median_ == 0) return false;
  for (const Count& count : CountsOf(task, tally)) {
    if (count.threshold < limit()) continue;
    return count.above > 0 || largest_norm > count.threshold * kRounding;
  }
  return false;
}

uint32_t MedianLimit::Clipped(const v1::Task& task, const Tally& tally) {
  for (const Count& count : CountsOf(task, tally)) {
    if (task.max_norm() > 0 && count.threshold == task.max_norm() * kAtLimit) {
      return static_cast<uint32_t>(count.above);
    }
  }
  return 0;
}

absl::Status MedianLimit::Restore(absl::Span<const double> state) {
  if (state.empty()) return absl::OkStatus();  // of a run that began without a limit
  const bool earlier = state.size() == 1;      // a version that saved the median alone
  for (const double value : state) {
    if (!(value >= 0) || !std::isfinite(value) || !(earlier || state.size() == 5)) {
      return absl::DataLossError("saved median of the displacements is damaged");
    }
  }
  median_ = state[0];
  limit_ = earlier ? multiple_ * median_ : state[1];
  lowest_ = earlier ? median_ : state[2];
  width_ = earlier ? 1 : state[3];
  first_ = earlier ? median_ : state[4];
  return absl::OkStatus();
}

}  // namespace leeway
