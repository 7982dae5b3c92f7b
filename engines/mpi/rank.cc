#include "engines/mpi/rank.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace leeway {
namespace {

template <typename T>
std::string ToBytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <typename T>
std::vector<T> FromBytes(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

}  // namespace

absl::StatusOr<v1::JoinRequest> Rank::Introduce() {
  const v1::JoinRequest own = worker_.Hosted();
  const std::vector<std::string> all = ranks_.Gather(own.SerializeAsString());
  v1::JoinRequest job;
  absl::Status fits;
  begins_.clear();
  for (size_t rank = 0; rank < all.size(); ++rank) {
    v1::JoinRequest hosted;
    hosted.ParseFromString(all[rank]);
    if (rank == 0) *job.mutable_schema() = hosted.schema();
    if (hosted.schema().SerializeAsString() != job.schema().SerializeAsString() && fits.ok()) {
      fits = absl::InvalidArgumentError(
          absl::StrCat("data of rank ", rank, " (", hosted.schema().ShortDebugString(),
                       ") differs in shape from that of rank 0 (", job.schema().ShortDebugString(),
                       "); prepare them alike"));
    }
    begins_.push_back(static_cast<uint32_t>(job.clients_size()));
    for (v1::HostedClient& client : *hosted.mutable_clients()) {
      *job.add_clients() = std::move(client);
    }
  }
  begins_.push_back(static_cast<uint32_t>(job.clients_size()));
  std::string bytes = ToBytes(begins_);
  ranks_.Broadcast(bytes);
  begins_ = FromBytes<uint32_t>(bytes);
  LEEWAY_RETURN_IF_ERROR(ranks_.Agree(fits));
  FindPaths(job);
  return job;
}

// A rank's clients are its directories in the order that the user gave them, and then all others,
// which cannot move.
void Rank::FindPaths(const v1::JoinRequest& job) {
  std::vector<std::string> paths;
  if (data_) {
    paths.resize(begins_.back());
    std::vector<uint32_t> next(begins_.begin(), begins_.end() - 1);
    for (size_t i = 0; i < data_->data.size(); ++i) {
      if (data_->assigned[i] < 0) continue;
      paths[next[static_cast<size_t>(data_->assigned[i])]++] = data_->data[i];
    }
    guests_.emplace(data_->options, std::move(paths));
  }
  if (!ranks_.first()) return;
  std::vector<Balance::Client> clients;
  for (int i = 0; i < job.clients_size(); ++i) {
    const auto client = static_cast<uint32_t>(i);
    clients.push_back({job.clients(i).examples() + job.clients(i).test_examples(), HostOf(client),
                       guests_ && guests_->Movable(client)});
  }
  balance_.emplace(std::move(clients), ranks_.size());
}

int Rank::HostOf(uint32_t client) const {
  return static_cast<int>(std::upper_bound(begins_.begin(), begins_.end() - 1, client) -
                          begins_.begin()) -
         1;
}

bool Rank::Hosts(uint32_t client) const {
  const auto rank = static_cast<size_t>(ranks_.rank());
  return client >= begins_[rank] && client < begins_[rank + 1];
}

absl::Status Rank::Prepare(std::string welcome) {
  ranks_.Broadcast(welcome);
  v1::Welcome parsed;
  parsed.ParseFromString(welcome);
  if (guests_) guests_->Prepare(parsed);
  return ranks_.Agree(worker_.Prepare(parsed));
}

template <typename T>
void Rank::BroadcastVector(Vector<T>& values) const {
  values.resize(static_cast<Eigen::Index>(ranks_.Broadcast(static_cast<uint64_t>(values.size()))));
  ranks_.Broadcast(absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()),
                                  static_cast<size_t>(values.size()) * sizeof(T)));
}

void Rank::BroadcastParameters(std::shared_ptr<const Parameters>& parameters) const {
  const bool float64 = ranks_.Broadcast(uint64_t{ranks_.first() && parameters->index() == 1}) == 1;
  if (ranks_.first()) {
    // Broadcasting does not change what rank 0 has.
    std::visit(
        [&](const auto& values) {
          BroadcastVector(const_cast<std::remove_cvref_t<decltype(values)>&>(values));
        },
        *parameters);
    return;
  }
  auto received = std::make_shared<Parameters>();
  if (float64) received->emplace<Vector<double>>();
  std::visit([&](auto& values) { BroadcastVector(values); }, *received);
  parameters = std::move(received);
}

OrderModels Rank::BroadcastModels(OrderModels models) const {
  BroadcastParameters(models.model);
  const uint64_t others = ranks_.Broadcast(uint64_t{models.others.size()});
  if (ranks_.first()) {
    for (auto& [name, parameters] : models.others) {
      std::string text = name;
      ranks_.Broadcast(text);
      BroadcastParameters(parameters);
    }
    return models;
  }
  for (uint64_t i = 0; i < others; ++i) {
    std::string name;
    ranks_.Broadcast(name);
    BroadcastParameters(models.others[name]);
  }
  return models;
}

v1::Order Rank::PartOf(const v1::Order& order, absl::Span<const int> assigned, bool guests) const {
  v1::Order part;
  part.set_run_id(order.run_id());
  part.set_round(order.round());
  part.set_attempt(order.attempt());
  *part.mutable_model() = order.model();
  *part.mutable_others() = order.others();
  *part.mutable_task() = order.task();
  const uint32_t begin = guests ? 0 : begins_[static_cast<size_t>(ranks_.rank())];
  for (int i = 0; i < order.clients_size(); ++i) {
    const uint32_t client = order.clients(i);
    if (assigned[static_cast<size_t>(i)] != ranks_.rank() || Hosts(client) == guests) continue;
    part.add_clients(client - begin);
    if (!order.groups().empty()) part.add_groups(order.groups(i));
    if (!order.state_rounds().empty()) part.add_state_rounds(order.state_rounds(i));
  }
  return part;
}

absl::StatusOr<Rank::Work> Rank::Compute(const v1::Order& order, absl::Span<const int> assigned,
                                         uint64_t seed, const OrderModels& models) {
  Work work;
  LEEWAY_ASSIGN_OR_RETURN(work.sum,
                          SumOrder(worker_, PartOf(order, assigned, false), models, seed));
  if (!guests_) return work;
  LEEWAY_RETURN_IF_ERROR(guests_->AddTo(PartOf(order, assigned, true), models, seed, work.sum));
  work.loading = guests_->loading();
  work.loaded = guests_->loaded();
  return work;
}

void Rank::MergeHeaders(v1::ReportHeader& own) const {
  const std::vector<std::string> all = ranks_.Gather(own.SerializeAsString());
  for (size_t rank = 1; rank < all.size(); ++rank) {
    v1::ReportHeader header;
    header.ParseFromString(all[rank]);
    own.mutable_clients()->MergeFrom(header.clients());
    own.mutable_failures()->MergeFrom(header.failures());
  }
}

void Rank::MergeTimes(const v1::Order& order, absl::Span<const int> assigned, const Work& work,
                      v1::ReportHeader& header) {
  constexpr size_t kBefore = 4;
  std::vector<double> own = {work.sum.wall, static_cast<double>(worker_.threads()), work.loading,
                             static_cast<double>(work.loaded)};
  own.insert(own.end(), work.sum.seconds.begin(), work.sum.seconds.end());
  const std::vector<std::string> all = ranks_.Gather(ToBytes(own));
  if (!ranks_.first()) return;
  std::vector<std::vector<double>> times;
  double longest = 0;
  double threads = 0;
  double busy = 0;
  Balance::Times merged;
  for (const std::string& one : all) {
    times.push_back(FromBytes<double>(one));
    const std::vector<double>& rank = times.back();
    longest = std::max(longest, rank[0]);
    threads += rank[1];
    merged.loading += rank[2];
    merged.loaded += static_cast<size_t>(rank[3]);
    busy += std::accumulate(rank.begin() + kBefore, rank.end(), 0.0);
  }
  // Each rank has its own clients' times first and then its guests', both as in the order.
  std::vector<size_t> next(times.size(), kBefore);
  merged.seconds.resize(static_cast<size_t>(order.clients_size()));
  for (const bool guests : {false, true}) {
    for (int i = 0; i < order.clients_size(); ++i) {
      const auto place = static_cast<size_t>(i);
      const auto rank = static_cast<size_t>(assigned[place]);
      if ((HostOf(order.clients(i)) != assigned[place]) != guests) continue;
      merged.seconds[place] = times[rank][next[rank]++];
      if (guests) ++moved_;
    }
  }
  const std::vector<uint32_t> clients(order.clients().begin(), order.clients().end());
  balance_->Add(clients, assigned, merged);
  const double idle = std::max(0.0, longest * threads - busy);
  header.set_busy_seconds(busy);
  header.set_idle_seconds(idle);
  busy_ += busy;
  idle_ += idle;
}

absl::StatusOr<Answer> Rank::DoOrder(v1::Order order, uint64_t seed, OrderModels models) {
  std::string bytes = order.SerializeAsString();
  ranks_.Broadcast(bytes);
  if (!ranks_.first()) order.ParseFromString(bytes);
  seed = ranks_.Broadcast(seed);
  std::string assignment;
  if (ranks_.first()) {
    const std::vector<uint32_t> clients(order.clients().begin(), order.clients().end());
    assignment = ToBytes(balance_->Assign(clients, !order.state_rounds().empty()));
  }
  ranks_.Broadcast(assignment);
  const std::vector<int> assigned = FromBytes<int>(assignment);
  models = BroadcastModels(std::move(models));
  absl::StatusOr<Work> own = Compute(order, assigned, seed, models);
  LEEWAY_RETURN_IF_ERROR(ranks_.Agree(own.status()));
  ranks_.Sum(Integers(own->sum.total));
  MergeHeaders(own->sum.header);
  MergeTimes(order, assigned, *own, own->sum.header);
  return WriteSum(std::move(own->sum.header), std::move(own->sum.total));
}

}  // namespace leeway
