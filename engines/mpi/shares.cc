#include "engines/mpi/shares.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/synthetic.h"

namespace leeway {
namespace {

bool IsRange(const std::string& source) {
  return absl::StrContains(source, absl::StrCat(kSyntheticFile, ":"));
}

// FILE:FIRST-LAST, the part of this rank; empty if it has none. A range that makes no sense
// stays as it is: who reads it says what is wrong.
std::string PartOfRange(const std::string& source, uint64_t rank, uint64_t ranks) {
  const size_t colon = source.rfind(':');
  const std::vector<std::string> ends = absl::StrSplit(source.substr(colon + 1), '-');
  uint64_t first = 0;
  uint64_t last = 0;
  if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &first) || !absl::SimpleAtoi(ends[1], &last) ||
      first > last) {
    return source;
  }
  const uint64_t count = last - first + 1;
  const uint64_t begin = count * rank / ranks;
  const uint64_t end = count * (rank + 1) / ranks;
  if (begin == end) return "";
  return absl::StrCat(source.substr(0, colon), ":", first + begin, "-", first + end - 1);
}

// Computing takes time in proportion to the inputs. A missing file is named by who loads it.
uint64_t CostOf(const std::string& directory) {
  std::error_code error;
  const auto bytes =
      std::filesystem::file_size(std::filesystem::path(directory) / "train_x.npy", error);
  return error ? 0 : static_cast<uint64_t>(bytes);
}

}  // namespace

std::vector<int> AssignByCost(absl::Span<const uint64_t> costs, int ranks) {
  std::vector<size_t> order(costs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return costs[a] > costs[b]; });
  std::vector<std::pair<uint64_t, uint64_t>> load(static_cast<size_t>(ranks));  // cost, clients
  std::vector<int> assigned(costs.size());
  for (const size_t client : order) {
    const auto least = std::min_element(load.begin(), load.end());
    least->first += costs[client];
    ++least->second;
    assigned[client] = static_cast<int>(least - load.begin());
  }
  return assigned;
}

std::vector<int> AssignOrder(absl::Span<const double> costs, absl::Span<const int> homes,
                             double moving, int ranks) {
  constexpr double kWorthIt = 0.95;
  const auto at_home = [&](size_t i) { return homes[i] < 0 ? -1 - homes[i] : homes[i]; };
  std::vector<int> stay(costs.size());
  std::vector<double> home_load(static_cast<size_t>(ranks));
  std::vector<double> load(static_cast<size_t>(ranks));
  std::vector<size_t> order;  // of those who may move
  for (size_t i = 0; i < costs.size(); ++i) {
    stay[i] = at_home(i);
    home_load[static_cast<size_t>(stay[i])] += costs[i];
    if (homes[i] < 0) {
      load[static_cast<size_t>(stay[i])] += costs[i];
    } else {
      order.push_back(i);
    }
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return costs[a] > costs[b]; });
  std::set<std::pair<double, int>> ends;  // of each rank's work so far
  for (int rank = 0; rank < ranks; ++rank) ends.emplace(load[static_cast<size_t>(rank)], rank);
  std::vector<int> assigned = stay;
  for (const size_t client : order) {
    const auto [least, other] = *ends.begin();
    const bool moves = least + moving < load[static_cast<size_t>(stay[client])];
    const int rank = moves ? other : stay[client];
    double& end = load[static_cast<size_t>(rank)];
    ends.erase({end, rank});
    end += costs[client] + (moves ? moving : 0);
    ends.emplace(end, rank);
    assigned[client] = rank;
  }
  const auto longest = [](const std::vector<double>& of) {
    return *std::max_element(of.begin(), of.end());
  };
  return longest(load) < kWorthIt * longest(home_load) ? assigned : stay;
}

std::vector<int> RanksOf(const std::vector<std::string>& data, int ranks) {
  std::vector<uint64_t> costs;
  for (const std::string& source : data) {
    if (!IsRange(source)) costs.push_back(CostOf(source));
  }
  const std::vector<int> by_cost = AssignByCost(costs, ranks);
  std::vector<int> assigned;
  size_t directory = 0;
  for (const std::string& source : data) {
    assigned.push_back(IsRange(source) ? -1 : by_cost[directory++]);
  }
  return assigned;
}

absl::StatusOr<std::vector<std::string>> ShareOf(const std::vector<std::string>& data,
                                                 absl::Span<const int> assigned, int rank,
                                                 int ranks) {
  std::vector<std::string> share;
  for (size_t i = 0; i < data.size(); ++i) {
    if (assigned[i] >= 0) {
      if (assigned[i] == rank) share.push_back(data[i]);
    } else if (std::string part =
                   PartOfRange(data[i], static_cast<uint64_t>(rank), static_cast<uint64_t>(ranks));
               !part.empty()) {
      share.push_back(std::move(part));
    }
  }
  if (share.empty() && !data.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", ranks, " ranks, but no client for rank ", rank,
                     "; start at most as many ranks as there are clients"));
  }
  return share;
}

}  // namespace leeway
