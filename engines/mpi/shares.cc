#include "engines/mpi/shares.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <system_error>

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

absl::StatusOr<std::vector<std::string>> ShareOf(const std::vector<std::string>& data, int rank,
                                                 int ranks) {
  std::vector<uint64_t> costs;
  for (const std::string& source : data) {
    if (!IsRange(source)) costs.push_back(CostOf(source));
  }
  const std::vector<int> assigned = AssignByCost(costs, ranks);
  std::vector<std::string> share;
  size_t directory = 0;
  for (const std::string& source : data) {
    if (!IsRange(source)) {
      if (assigned[directory++] == rank) share.push_back(source);
    } else if (std::string part =
                   PartOfRange(source, static_cast<uint64_t>(rank), static_cast<uint64_t>(ranks));
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
