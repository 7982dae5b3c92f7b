// Rank: what one rank does in an exchange that rank 0 has begun. Every exchange begins with a
// message of rank 0:
//   prepare, welcome             -> each rank prepares its worker; they agree on success
//   order, order, seed, models,  -> each rank computes the clients that are assigned to it; their
//     assignment                    sums, headers and times are gathered on rank 0
//   finish, code and text        -> the run is over for all
#ifndef LEEWAY_ENGINES_MPI_RANK_H_
#define LEEWAY_ENGINES_MPI_RANK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/answer.h"
#include "client/builtin_worker.h"
#include "client/worker.h"
#include "common/vectors.h"
#include "engines/mpi/balance.h"
#include "engines/mpi/guests.h"
#include "engines/mpi/ranks.h"

namespace leeway {

enum class Message : uint64_t { kPrepare, kOrder, kFinish };

// The data of all ranks, if ranks can compute one another's clients.
struct JobData {
  BuiltinWorkerOptions options;
  std::vector<std::string> data;  // as the user gave them
  std::vector<int> assigned;      // rank of each; -1: a range
};

class Rank {
 public:
  Rank(const Ranks& ranks, Worker& worker, std::optional<JobData> data)
      : ranks_(ranks), worker_(worker), data_(std::move(data)) {}

  // Learns which clients of the job are this rank's; on rank 0, who all of them are.
  absl::StatusOr<v1::JoinRequest> Introduce();
  absl::Status Prepare(std::string welcome);
  // On rank 0: the whole job's answer.
  absl::StatusOr<Answer> DoOrder(v1::Order order, uint64_t seed, OrderModels models);
  // Of the time of all ranks' threads, the share in which they waited for the slowest.
  double idle_share() const { return busy_ > 0 ? idle_ / (busy_ + idle_) : 0; }
  // Clients that were computed by a rank that had not joined with them.
  uint64_t moved() const { return moved_; }

 private:
  struct Work {
    SummedAnswer sum;
    double loading = 0;
    size_t loaded = 0;
  };

  int HostOf(uint32_t client) const;
  bool Hosts(uint32_t client) const;
  void FindPaths(const v1::JoinRequest& job);
  // This rank's clients of the order: its own, with their numbers here, or guests.
  v1::Order PartOf(const v1::Order& order, absl::Span<const int> assigned, bool guests) const;
  absl::StatusOr<Work> Compute(const v1::Order& order, absl::Span<const int> assigned,
                               uint64_t seed, const OrderModels& models);
  template <typename T>
  void BroadcastVector(Vector<T>& values) const;
  void BroadcastParameters(std::shared_ptr<const Parameters>& parameters) const;
  OrderModels BroadcastModels(OrderModels models) const;
  // On rank 0: the header for all ranks.
  void MergeHeaders(v1::ReportHeader& own) const;
  // On rank 0: what the order took on all ranks goes to the header and to the next assignment.
  void MergeTimes(const v1::Order& order, absl::Span<const int> assigned, const Work& work,
                  v1::ReportHeader& header);

  const Ranks& ranks_;
  Worker& worker_;
  const std::optional<JobData> data_;
  std::vector<uint32_t> begins_;  // each rank's first client among those of the job, and their end
  std::optional<Guests> guests_;  // if clients can move
  std::optional<Balance> balance_;  // on rank 0
  double busy_ = 0;                 // over all orders, in seconds; rank 0 only
  double idle_ = 0;
  uint64_t moved_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_ENGINES_MPI_RANK_H_
