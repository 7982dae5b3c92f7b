#include "client/import/assignment.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace leeway {
namespace {

std::vector<uint32_t> Shuffled(uint64_t samples, Rng& rng) {
  std::vector<uint32_t> order(samples);
  std::iota(order.begin(), order.end(), 0U);
  rng.Shuffle(order);
  return order;
}

// Samples by class, each class in random order.
std::map<int64_t, std::vector<uint32_t>> ByClass(absl::Span<const int64_t> labels, uint64_t samples,
                                                 Rng& rng) {
  std::map<int64_t, std::vector<uint32_t>> classes;
  for (uint32_t sample : Shuffled(samples, rng)) {
    classes[labels.empty() ? 0 : labels[sample]].push_back(sample);
  }
  return classes;
}

// Cuts `samples` at the running sums of the shares, rounded, so that every
// sample is dealt and no client is off by more than one.
void Deal(const std::vector<uint32_t>& samples, const std::vector<double>& shares,
          Assignment* assignment) {
  const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
  double sum = 0;
  size_t begin = 0;
  for (size_t client = 0; client < shares.size(); ++client) {
    sum += shares[client];
    const double cut = std::floor(sum / total * static_cast<double>(samples.size()) + 0.5);
    const bool last = client + 1 == shares.size();
    const size_t end =
        last ? samples.size() : std::clamp(static_cast<size_t>(cut), begin, samples.size());
    std::vector<uint32_t>& target = (*assignment)[client];
    target.insert(target.end(), samples.begin() + static_cast<std::ptrdiff_t>(begin),
                  samples.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
  }
}

// One draw from Dirichlet(alpha, ..., alpha), up to a factor. When alpha is so
// small that all draws underflow, one client takes all.
std::vector<double> DrawShares(uint64_t clients, double alpha, Rng& rng) {
  std::vector<double> shares(clients);
  for (double& share : shares) share = rng.Gamma(alpha);
  if (!(std::accumulate(shares.begin(), shares.end(), 0.0) > 0)) shares[rng.Below(clients)] = 1;
  return shares;
}

}  // namespace

Assignment AssignSizes(absl::Span<const uint64_t> sizes, Rng& rng) {
  const std::vector<uint32_t> order =
      Shuffled(std::accumulate(sizes.begin(), sizes.end(), uint64_t{0}), rng);
  Assignment assignment;
  auto next = order.begin();
  for (uint64_t size : sizes) {
    assignment.emplace_back(next, next + static_cast<std::ptrdiff_t>(size));
    next += static_cast<std::ptrdiff_t>(size);
  }
  return assignment;
}

std::vector<uint64_t> EqualSizes(uint64_t samples, uint64_t clients) {
  std::vector<uint64_t> sizes(clients, samples / clients);
  for (uint64_t i = 0; i < samples % clients; ++i) ++sizes[i];
  return sizes;
}

std::vector<uint64_t> LogNormalSizes(uint64_t samples, uint64_t clients, double sigma, Rng& rng) {
  std::vector<double> weights(clients);
  for (double& weight : weights) weight = std::exp(sigma * rng.Normal());
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  // One sample each; the rest by weight, cut at rounded running sums.
  const uint64_t rest = samples - clients;
  std::vector<uint64_t> sizes(clients);
  double sum = 0;
  uint64_t begin = 0;
  for (uint64_t i = 0; i < clients; ++i) {
    sum += weights[i];
    const auto cut =
        static_cast<uint64_t>(std::floor(sum / total * static_cast<double>(rest) + 0.5));
    const uint64_t end = i + 1 == clients ? rest : std::clamp(cut, begin, rest);
    sizes[i] = 1 + end - begin;
    begin = end;
  }
  return sizes;
}

Assignment AssignDirichlet(absl::Span<const int64_t> labels, uint64_t clients, double alpha,
                           Rng& rng) {
  Assignment assignment(clients);
  for (const auto& [label, samples] : ByClass(labels, labels.size(), rng)) {
    Deal(samples, DrawShares(clients, alpha, rng), &assignment);
  }
  return assignment;
}

Assignment AssignShards(absl::Span<const int64_t> labels, uint64_t clients,
                        uint64_t shards_per_client, Rng& rng) {
  std::vector<uint32_t> order;
  order.reserve(labels.size());
  for (const auto& [label, samples] : ByClass(labels, labels.size(), rng)) {
    order.insert(order.end(), samples.begin(), samples.end());
  }
  const uint64_t shards = clients * shards_per_client;
  const std::vector<uint32_t> dealt = Shuffled(shards, rng);
  Assignment assignment(clients);
  for (uint64_t i = 0; i < shards; ++i) {
    const uint64_t shard = dealt[i];
    const auto begin = static_cast<std::ptrdiff_t>(shard * order.size() / shards);
    const auto end = static_cast<std::ptrdiff_t>((shard + 1) * order.size() / shards);
    std::vector<uint32_t>& target = assignment[i / shards_per_client];
    target.insert(target.end(), order.begin() + begin, order.begin() + end);
  }
  return assignment;
}

Assignment FollowShares(const Assignment& train, absl::Span<const int64_t> train_labels,
                        absl::Span<const int64_t> labels, uint64_t samples, Rng& rng) {
  std::vector<double> sizes;
  std::map<int64_t, std::vector<double>> shares;
  for (size_t client = 0; client < train.size(); ++client) {
    sizes.push_back(static_cast<double>(train[client].size()));
    for (uint32_t sample : train[client]) {
      std::vector<double>& counts = shares[train_labels.empty() ? 0 : train_labels[sample]];
      counts.resize(train.size());
      ++counts[client];
    }
  }
  Assignment assignment(train.size());
  for (const auto& [label, members] : ByClass(labels, samples, rng)) {
    const auto found = shares.find(label);
    Deal(members, found == shares.end() ? sizes : found->second, &assignment);
  }
  return assignment;
}

uint64_t FillUp(Assignment* assignment, uint64_t least) {
  uint64_t moved = 0;
  for (std::vector<uint32_t>& client : *assignment) {
    while (client.size() < least) {
      auto largest =
          std::max_element(assignment->begin(), assignment->end(),
                           [](const auto& a, const auto& b) { return a.size() < b.size(); });
      if (largest->size() <= least) return moved;
      client.push_back(largest->back());
      largest->pop_back();
      ++moved;
    }
  }
  return moved;
}

}  // namespace leeway
