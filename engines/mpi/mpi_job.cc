// The ranks of an MPI job, as one process to the server. Rank 0 joins for all of them, passes
// orders and models on, and sends one report: the sum of the ranks' integers. The bits are
// those of one process, because integer sums do not depend on how they are split.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/answer.h"
#include "client/job.h"
#include "common/plural.h"
#include "common/status.h"
#include "engines/mpi/rank.h"
#include "engines/mpi/ranks.h"
#include "engines/mpi/shares.h"

namespace leeway {
namespace {

// This rank can load any of the directories.
bool AllReadable(const JobData& job) {
  for (size_t i = 0; i < job.data.size(); ++i) {
    const std::string file = job.data[i] + "/train_x.npy";
    if (job.assigned[i] >= 0 && access(file.c_str(), R_OK) != 0) return false;
  }
  return true;
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
    return rank_.DoOrder(std::move(order), seed, models);
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
  // Rank 0 decides whose is whose, so that all ranks agree on it. Clients can move to other ranks
  // if these can read their data.
  absl::Status TakeShare(BuiltinWorkerOptions& options) override {
    JobData job;
    job.options = options;
    job.data = options.data;
    const uint64_t first = ranks_.Broadcast(uint64_t{options.data.size()});
    LEEWAY_RETURN_IF_ERROR(ranks_.Agree(first == options.data.size()
                                            ? absl::OkStatus()
                                            : absl::InvalidArgumentError(absl::StrCat(
                                                  options.data.size(), " data given, to rank 0 ",
                                                  first, "; give all ranks the same list"))));
    job.assigned = RanksOf(options.data, ranks_.size());
    ranks_.Broadcast(absl::MakeSpan(reinterpret_cast<std::byte*>(job.assigned.data()),
                                    job.assigned.size() * sizeof(int)));
    absl::StatusOr<std::vector<std::string>> share =
        ShareOf(options.data, job.assigned, ranks_.rank(), ranks_.size());
    LEEWAY_RETURN_IF_ERROR(ranks_.Agree(share.status()));
    options.data = *std::move(share);
    if (!ranks_.first()) options.evaluators.clear();
    const bool readable = AllReadable(job);
    if (ranks_.Agree(readable ? absl::OkStatus() : absl::NotFoundError("data")).ok()) {
      data_ = std::move(job);
    }
    return absl::OkStatus();
  }

  absl::Status TakePart(Worker& worker, const ConnectionOptions& options) override {
    Rank rank(ranks_, worker, data_);
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
    absl::FPrintF(stderr, "leeway-client: %s on %s, idle share %.3f, clients moved %d times\n",
                  Counted(static_cast<uint64_t>(ranks_.size()), "rank"),
                  Counted(static_cast<uint64_t>(ranks_.nodes()), "node"), rank.idle_share(),
                  rank.moved());
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
          rank.DoOrder({}, 0, {}).status().IgnoreError();
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
  std::optional<JobData> data_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Job>> EnterJob(bool /*ranks*/, char** /*argv*/) {
  return std::make_unique<MpiJob>();
}

}  // namespace leeway
