#include "engines/mpi/guests.h"

#include <mutex>
#include <set>
#include <utility>

#include "absl/time/clock.h"
#include "common/status.h"

namespace leeway {
namespace {

// More than this are only kept while they are needed.
constexpr size_t kMostKept = 64;

BuiltinWorkerOptions OneThread(BuiltinWorkerOptions options) {
  options.data.clear();
  options.evaluators.clear();
  options.threads = 1;
  return options;
}

// The order for one client, who is alone in its worker.
v1::Order OrderFor(const v1::Order& order, int place) {
  v1::Order one = order;
  one.clear_clients();
  one.clear_groups();
  one.add_clients(0);
  if (!order.groups().empty()) one.add_groups(order.groups(place));
  return one;
}

}  // namespace

Guests::Guests(const BuiltinWorkerOptions& options, std::vector<std::string> paths)
    : options_(OneThread(options)), paths_(std::move(paths)), workers_(options.threads) {}

void Guests::Prepare(const v1::Welcome& welcome) {
  welcome_ = welcome;
  here_.clear();
}

absl::Status Guests::LoadMissing(const v1::Order& order) {
  const std::set<uint32_t> wanted(order.clients().begin(), order.clients().end());
  if (here_.size() + wanted.size() > kMostKept) {
    std::erase_if(here_, [&](const auto& one) { return wanted.count(one.first) == 0; });
  }
  for (const uint32_t client : wanted) {
    if (here_.count(client) > 0) continue;
    BuiltinWorkerOptions options = options_;
    options.data = {paths_.at(client)};
    LEEWAY_ASSIGN_OR_RETURN(std::unique_ptr<BuiltinWorker> worker, BuiltinWorker::Load(options));
    LEEWAY_RETURN_IF_ERROR(worker->Prepare(welcome_));
    here_[client] = std::move(worker);
    ++loaded_;
  }
  return absl::OkStatus();
}

absl::Status Guests::AddTo(const v1::Order& order, const OrderModels& models, uint64_t seed,
                           SummedAnswer& sum) {
  loading_ = 0;
  loaded_ = 0;
  if (order.clients().empty()) return absl::OkStatus();
  const absl::Time began = absl::Now();
  LEEWAY_RETURN_IF_ERROR(LoadMissing(order));
  loading_ = absl::ToDoubleSeconds(absl::Now() - began);
  const size_t own = sum.seconds.size();
  sum.seconds.resize(own + static_cast<size_t>(order.clients_size()));
  std::mutex mu;
  absl::Status status;
  workers_.Run(static_cast<size_t>(order.clients_size()), [&](size_t place) {
    const v1::Order one = OrderFor(order, static_cast<int>(place));
    absl::StatusOr<SummedAnswer> answer =
        SumOrder(*here_.at(order.clients(static_cast<int>(place))), one, models, seed);
    const std::lock_guard lock(mu);
    if (answer.ok()) status.Update(sum.total.Merge(answer->total));
    if (!answer.ok()) return status.Update(answer.status());
    sum.header.mutable_clients()->MergeFrom(answer->header.clients());
    sum.header.mutable_failures()->MergeFrom(answer->header.failures());
    sum.seconds[own + place] = answer->seconds[0];
  });
  sum.wall += absl::ToDoubleSeconds(absl::Now() - began);
  return status;
}

}  // namespace leeway
