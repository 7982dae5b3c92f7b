#include "server/decile_search.h"

#include <algorithm>
#include <cmath>

namespace leeway {
namespace {

constexpr double kEverything = std::numeric_limits<double>::lowest();
// Above this, and not above 0, is 0 alone.
constexpr double kBelowZero = -std::numeric_limits<double>::denorm_min();
constexpr int kPositive = 126;    // first thresholds on either side of 0
constexpr size_t kFurther = 252;  // of a later round, for all deciles together
constexpr double kSmallest = 1e-17;

// The k-th smallest of n numbers is above t if fewer than k of them are not.
double RankOf(size_t decile, double clients) {
  return std::max(1.0, std::ceil(static_cast<double>(decile + 1) / 10 * clients - 1e-9));
}
bool IsAbove(double rank, double clients, double above) { return clients - above < rank - 0.5; }

}  // namespace

DecileSearch::DecileSearch(const std::vector<double>& positive) {
  first_.push_back(kEverything);
  for (auto t = positive.rbegin(); t != positive.rend(); ++t) first_.push_back(-*t);
  first_.insert(first_.end(), {kBelowZero, 0.0});
  first_.insert(first_.end(), positive.begin(), positive.end());
}

DecileSearch DecileSearch::OfAnySize(double largest) {
  std::vector<double> positive;
  for (int i = 1; i <= kPositive; ++i) {
    positive.push_back(largest * std::pow(kSmallest, 1 - i / static_cast<double>(kPositive)));
  }
  return DecileSearch(positive);
}

DecileSearch DecileSearch::OfRange(double largest) {
  std::vector<double> positive;
  for (int i = 1; i <= kPositive; ++i) positive.push_back(largest * i / kPositive);
  return DecileSearch(positive);
}

std::vector<double> DecileSearch::thresholds() const {
  if (rounds_ == 0) return first_;
  std::vector<Cell> open;  // deciles that share a cell share its thresholds
  for (const Cell& cell : cells_) {
    if (cell.open() && (open.empty() || !(open.back() == cell))) open.push_back(cell);
  }
  std::vector<double> out = {kEverything};
  for (const Cell& cell : open) {
    const size_t parts = kFurther / open.size() + 1;
    for (size_t i = 1; i < parts; ++i) {
      out.push_back(cell.low +
                    (cell.high - cell.low) * (static_cast<double>(i) / static_cast<double>(parts)));
    }
  }
  return out;
}

void DecileSearch::FirstCells(absl::Span<const double> asked, absl::Span<const double> above) {
  const double clients = above[0];
  clients_ = static_cast<uint32_t>(std::lround(clients));
  for (size_t i = 0; i < asked.size(); ++i) {
    if (asked[i] == kBelowZero)
      below_zero_ = static_cast<uint32_t>(std::lround(clients - above[i]));
    if (asked[i] == 0) above_zero_ = static_cast<uint32_t>(std::lround(above[i]));
  }
  for (size_t k = 0; k < kDeciles; ++k) {
    size_t j = 0;  // the last threshold that the decile is above
    while (j + 1 < asked.size() && IsAbove(RankOf(k, clients), clients, above[j + 1])) ++j;
    const double high = asked[std::min(j + 1, asked.size() - 1)];
    // Beyond the outermost thresholds it counts as these.
    const bool known = j == 0 || j + 1 == asked.size() || high == 0;
    cells_[k] = {known ? high : asked[j], high};
  }
}

void DecileSearch::Narrow(absl::Span<const double> above) {
  const std::vector<double> asked = thresholds();
  if (rounds_++ == 0) return FirstCells(asked, above);
  const double clients = above[0];
  for (size_t k = 0; k < kDeciles; ++k) {
    const Cell before = cells_[k];
    for (size_t j = 1; j < asked.size(); ++j) {
      if (!(before.low < asked[j] && asked[j] < before.high)) continue;
      if (IsAbove(RankOf(k, clients), clients, above[j])) {
        cells_[k].low = asked[j];
      } else {
        cells_[k].high = asked[j];
        break;
      }
    }
  }
}

std::vector<double> DecileSearch::deciles() const {
  std::vector<double> out;
  if (clients_ == 0) return out;
  for (const Cell& cell : cells_) {
    out.push_back(cell.open() ? cell.low + (cell.high - cell.low) / 2 : cell.high);
  }
  return out;
}

std::vector<double> DecileSearch::Save() const {
  std::vector<double> out = {static_cast<double>(rounds_), static_cast<double>(clients_),
                             static_cast<double>(above_zero_), static_cast<double>(below_zero_)};
  for (const Cell& cell : cells_) out.insert(out.end(), {cell.low, cell.high});
  return out;
}

absl::Status DecileSearch::Restore(absl::Span<const double> state) {
  if (state.size() != kSavedSize) return absl::DataLossError("saved deciles are cut short");
  rounds_ = static_cast<int>(state[0]);
  clients_ = static_cast<uint32_t>(state[1]);
  above_zero_ = static_cast<uint32_t>(state[2]);
  below_zero_ = static_cast<uint32_t>(state[3]);
  for (size_t k = 0; k < kDeciles; ++k) cells_[k] = {state[4 + 2 * k], state[5 + 2 * k]};
  return absl::OkStatus();
}

}  // namespace leeway
