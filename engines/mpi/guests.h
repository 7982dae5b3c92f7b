// Guests: clients that another rank joined with, and that this rank computes for it. Their data
// are loaded when they first come, and stay as long as there are not too many of them.
#ifndef LEEWAY_ENGINES_MPI_GUESTS_H_
#define LEEWAY_ENGINES_MPI_GUESTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/answer.h"
#include "client/builtin_worker.h"
#include "client/worker.h"
#include "common/workers.h"
#include "proto/federation.pb.h"

namespace leeway {

class Guests {
 public:
  // `paths`: by client of the job, its directory; empty if it cannot move.
  Guests(const BuiltinWorkerOptions& options, std::vector<std::string> paths);

  bool Movable(uint32_t client) const { return client < paths_.size() && !paths_[client].empty(); }
  // A run begins.
  void Prepare(const v1::Welcome& welcome);
  // Adds the clients of this order, which are the job's by number, to `sum`.
  absl::Status AddTo(const v1::Order& order, const OrderModels& models, uint64_t seed,
                     SummedAnswer& sum);

  // How long loading took in the last AddTo, of so many clients.
  double loading() const { return loading_; }
  size_t loaded() const { return loaded_; }

 private:
  absl::Status LoadMissing(const v1::Order& order);

  const BuiltinWorkerOptions options_;
  const std::vector<std::string> paths_;
  Workers workers_;
  v1::Welcome welcome_;
  std::map<uint32_t, std::unique_ptr<BuiltinWorker>> here_;  // by client of the job
  double loading_ = 0;
  size_t loaded_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_ENGINES_MPI_GUESTS_H_
