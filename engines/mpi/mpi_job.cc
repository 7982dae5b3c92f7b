// The ranks of an MPI job, as one process to the server. Rank 0 joins for all of them, passes
// orders and models on, and sends one report: the sum of the ranks' integers. The bits are
// those of one process, because integer sums do not depend on how they are split.
//
// Every exchange begins with a message of rank 0:
//   prepare, welcome             -> each rank prepares its worker; they agree on success
//   order, order, seed, models   -> each rank computes its clients; headers, times and sums
//                                   are gathered on rank 0
//   finish, code and text        -> the run is over for all
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/answer.h"
#include "client/job.h"
#include "common/status.h"
#include "common/sums.h"
#include "engines/mpi/ranks.h"
#include "engines/mpi/shares.h"

namespace leeway {
namespace {

enum class Message : uint64_t { kPrepare, kOrder, kFinish };

// The part of an order that goes to the clients of a rank, which are those from `begin` on.
v1::Order PartOf(const v1::Order& order, uint32_t begin, size_t count) {
  v1::Order part = order;
  part.clear_clients();
  part.clear_groups();
  part.clear_state_rounds();
  for (int i = 0; i < order.clients_size(); ++i) {
    if (order.clients(i) < begin || order.clients(i) - begin >= count) continue;
    part.add_clients(order.clients(i) - begin);
    if (!order.groups().empty()) part.add_groups(order.groups(i));
    if (!order.state_rounds().empty()) part.add_state_rounds(order.state_rounds(i));
  }
  return part;
}

// What one rank does in an exchange that rank 0 has begun.
class Rank {
 public:
  Rank(const Ranks& ranks, Worker& worker) : ranks_(ranks), worker_(worker) {}

  // Learns which clients of the job are this rank's; on rank 0, who all of them are.
  absl::StatusOr<v1::JoinRequest> Introduce();
  absl::Status Prepare(std::string welcome);
  // On rank 0: the whole job's answer.
  absl::StatusOr<Answer> DoOrder(std::string order, uint64_t seed, OrderModels models);
  // Of the ranks' computing time, the share that they have waited for the slowest.
  double idle_share() const { return longest_ > 0 ? idle_ / longest_ : 0; }

 private:
  template <typename T>
  void BroadcastVector(Vector<T>& values) const;
  void BroadcastParameters(std::shared_ptr<const Parameters>& parameters) const;
  OrderModels BroadcastModels(OrderModels models) const;
  // On rank 0: the header for all ranks.
  v1::ReportHeader MergeHeaders(v1::ReportHeader own) const;
  void CountTime(double seconds);

  const Ranks& ranks_;
  Worker& worker_;
  uint32_t begin_ = 0;  // this rank's first client among those of the job
  double idle_ = 0;     // mean over ranks, in seconds; rank 0 only
  double longest_ = 0;
};

absl::StatusOr<v1::JoinRequest> Rank::Introduce() {
  const v1::JoinRequest own = worker_.Hosted();
  const std::vector<std::string> all = ranks_.Gather(own.SerializeAsString());
  v1::JoinRequest job;
  absl::Status fits;
  std::string begins;  // a number for each rank
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
    absl::StrAppend(&begins, job.clients_size(), " ");
    for (v1::HostedClient& client : *hosted.mutable_clients()) {
      *job.add_clients() = std::move(client);
    }
  }
  ranks_.Broadcast(begins);
  const std::vector<std::string> parts = absl::StrSplit(begins, ' ');
  if (!absl::SimpleAtoi(parts[static_cast<size_t>(ranks_.rank())], &begin_)) {
    fits = absl::InternalError("MPI has garbled a message");
  }
  LEEWAY_RETURN_IF_ERROR(ranks_.Agree(fits));
  return job;
}

absl::Status Rank::Prepare(std::string welcome) {
  ranks_.Broadcast(welcome);
  v1::Welcome parsed;
  parsed.ParseFromString(welcome);
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

v1::ReportHeader Rank::MergeHeaders(v1::ReportHeader own) const {
  const std::vector<std::string> all = ranks_.Gather(own.SerializeAsString());
  for (size_t rank = 1; rank < all.size(); ++rank) {
    v1::ReportHeader header;
    header.ParseFromString(all[rank]);
    own.mutable_clients()->MergeFrom(header.clients());
    own.mutable_failures()->MergeFrom(header.failures());
  }
  return own;
}

void Rank::CountTime(double seconds) {
  const std::vector<double> all = ranks_.Gather(seconds);
  if (!ranks_.first()) return;
  double longest = 0;
  double total = 0;
  for (const double one : all) {
    longest = std::max(longest, one);
    total += one;
  }
  longest_ += longest;
  idle_ += longest - total / static_cast<double>(all.size());
}

absl::StatusOr<Answer> Rank::DoOrder(std::string order, uint64_t seed, OrderModels models) {
  ranks_.Broadcast(order);
  seed = ranks_.Broadcast(seed);
  v1::Order parsed;
  parsed.ParseFromString(order);
  models = BroadcastModels(std::move(models));
  const absl::Time began = absl::Now();
  absl::StatusOr<SummedAnswer> own =
      SumOrder(worker_, PartOf(parsed, begin_, worker_.clients()), models, seed);
  const double seconds = absl::ToDoubleSeconds(absl::Now() - began);
  LEEWAY_RETURN_IF_ERROR(ranks_.Agree(own.status()));
  CountTime(seconds);
  v1::ReportHeader header = MergeHeaders(std::move(own->header));
  std::vector<int64_t> flat(own->total.flat().begin(), own->total.flat().end());
  ranks_.Sum(flat);
  return WriteSum(std::move(header), std::move(flat));
}

// Rank 0's worker, as the connection sees it: that of all clients of the job.
class JobWorker : public Worker {
 public:
  JobWorker(const Ranks& ranks, Rank& rank, Worker& own, v1::JoinRequest job)
      : ranks_(ranks), rank_(rank), own_(own), job_(std::move(job)) {}

  v1::JoinRequest Hosted() const override { return job_; }
  size_t clients() const override { return static_cast<size_t>(job_.clients_size()); }
  std::string ClientId(uint32_t client) const override {
    return job_.clients(static_cast<int>(client)).id();
  }
  absl::Status Prepare(const v1::Welcome& welcome) override {
    Begin(Message::kPrepare);
    return rank_.Prepare(welcome.SerializeAsString());
  }
  absl::StatusOr<Parameters> Decode(absl::string_view file) const override {
    return own_.Decode(file);
  }
  absl::Status Compute(const v1::Order& /*order*/, const OrderModels& /*models*/,
                       Take /*take*/) override {
    return absl::InternalError("orders of an MPI job are answered by AnswerForAll");
  }

  absl::StatusOr<Answer> AnswerForAll(v1::Order order, const OrderModels& models, uint64_t seed) {
    for (const uint32_t client : order.clients()) {
      if (client >= clients()) {
        return absl::InternalError(
            absl::StrCat("order names hosted client ", client, " of ", clients()));
      }
    }
    order.mutable_model()->clear_inline_();  // the ranks get it decoded
    for (v1::NamedModel& other : *order.mutable_others()) other.mutable_model()->clear_inline_();
    Begin(Message::kOrder);
    return rank_.DoOrder(order.SerializeAsString(), seed, models);
  }
  void Finish(const absl::Status& outcome) {
    Begin(Message::kFinish);
    ranks_.Broadcast(static_cast<uint64_t>(outcome.code()));
    std::string text(outcome.message());
    ranks_.Broadcast(text);
  }

 private:
  void Begin(Message message) const { ranks_.BroadcastPatiently(static_cast<uint64_t>(message)); }

  const Ranks& ranks_;
  Rank& rank_;
  Worker& own_;
  const v1::JoinRequest job_;
};

class MpiJob : public Job {
 public:
  absl::Status TakeShare(BuiltinWorkerOptions& options) const override {
    absl::StatusOr<std::vector<std::string>> share =
        ShareOf(options.data, ranks_.rank(), ranks_.size());
    LEEWAY_RETURN_IF_ERROR(ranks_.Agree(share.status()));
    options.data = *std::move(share);
    if (!ranks_.first()) options.evaluators.clear();
    return absl::OkStatus();
  }

  absl::Status TakePart(Worker& worker, const ConnectionOptions& options) override {
    Rank rank(ranks_, worker);
    LEEWAY_ASSIGN_OR_RETURN(v1::JoinRequest job, rank.Introduce());
    const absl::Status outcome =
        ranks_.first() ? Lead(rank, worker, std::move(job), options) : Follow(rank);
    ranks_.Finish();
    return outcome;
  }

 private:
  absl::Status Lead(Rank& rank, Worker& own, v1::JoinRequest job, ConnectionOptions options) {
    JobWorker worker(ranks_, rank, own, std::move(job));
    options.answer = [&](Worker&, const v1::Order& order, const OrderModels& models,
                         uint64_t seed) { return worker.AnswerForAll(order, models, seed); };
    const absl::Status outcome = leeway::TakePart(worker, options);
    worker.Finish(outcome);
    absl::FPrintF(stderr, "leeway-client: %d ranks, idle share %.3f\n", ranks_.size(),
                  rank.idle_share());
    return outcome;
  }

  // Until rank 0 says that the run is over. An order that failed on this or another rank
  // ends rank 0's part with a message of its own.
  absl::Status Follow(Rank& rank) const {
    while (true) {
      switch (static_cast<Message>(ranks_.BroadcastPatiently(0))) {
        case Message::kPrepare:
          rank.Prepare("").IgnoreError();
          break;
        case Message::kOrder:
          rank.DoOrder("", 0, {}).status().IgnoreError();
          break;
        case Message::kFinish: {
          const auto code = static_cast<absl::StatusCode>(ranks_.Broadcast(uint64_t{0}));
          std::string text;
          ranks_.Broadcast(text);
          return absl::Status(code, text);
        }
      }
    }
  }

  Ranks ranks_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Job>> EnterJob(bool /*ranks*/, char** /*argv*/) {
  return std::make_unique<MpiJob>();
}

}  // namespace leeway
