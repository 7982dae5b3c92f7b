// BuiltinWorker: computes the models that Leeway contains. It computes one client per
// thread, so the number of threads changes nothing but speed. Clients have their data in
// files or, of the synthetic problem, are generated when they are needed, and then cost
// nothing while they are not asked to work. Not thread-safe: one order at a time.
#ifndef LEEWAY_CLIENT_BUILTIN_WORKER_H_
#define LEEWAY_CLIENT_BUILTIN_WORKER_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cost_book.h"
#include "client/dataset.h"
#include "client/local_update.h"
#include "client/objective.h"
#include "client/state_store.h"
#include "client/worker.h"
#include "common/model_layout.h"
#include "common/synthetic.h"
#include "common/vectors.h"
#include "common/workers.h"
#include "proto/federation.pb.h"

namespace leeway {

struct BuiltinWorkerOptions {
  // A client's directory each, or FILE/synthetic.json:FIRST-LAST: clients made on the
  // fly, counted from 0.
  std::vector<std::string> data;
  std::vector<std::string> evaluators;  // directories of central test sets
  size_t threads = 1;
  // Clients made on the fly are kept for their next order as far as this goes.
  size_t keep_bytes = size_t{1} << 30;
  // Where clients keep what their algorithm needs in the next round; created when it is.
  std::string state_directory = "leeway-state";
};

class BuiltinWorker : public Worker {
 public:
  // Loads every directory, and central test sets; all must have the same schema.
  static absl::StatusOr<std::unique_ptr<BuiltinWorker>> Load(const BuiltinWorkerOptions& options);

  v1::JoinRequest Hosted() const override;
  size_t clients() const override { return data_.size() + (made_ ? made_->count : 0); }
  std::string ClientId(uint32_t client) const override;
  // Builds the objectives for the run's model.
  absl::Status Prepare(const v1::Welcome& welcome) override;
  absl::StatusOr<Parameters> Decode(absl::string_view file) const override;
  absl::Status Compute(const v1::Order& order, const OrderModels& models, Take take) override;
  size_t threads() const override { return threads_; }
  void Learn(const v1::Order& order, absl::Span<const double> seconds) override;

 private:
  struct MadeClients {  // at the places after those with files
    SyntheticClients clients;
    uint32_t first = 0;
    uint32_t count = 0;
  };

  explicit BuiltinWorker(const BuiltinWorkerOptions& options)
      : threads_(options.threads),
        keep_bytes_(options.keep_bytes),
        workers_(std::make_unique<Workers>(options.threads)),
        states_(options.state_directory) {}
  absl::Status Add(Dataset data);
  absl::Status AddMade(const std::string& range);
  bool IsEvaluator(uint32_t client) const {
    return client < data_.size() && data_[client].evaluator;
  }
  // The objective of a client; if it is not kept yet, `made` owns it.
  absl::StatusOr<AnyObjective*> ObjectiveOf(uint32_t client, AnyObjective& made);
  // After a client's work: its objective is kept for the next order as far as keep_bytes goes.
  void Keep(uint32_t client, AnyObjective& made);
  // The places of an order's clients in the order of work: with the longest first, no
  // thread is left alone with one at the end.
  std::vector<size_t> LongestFirst(const v1::Order& order) const;
  uint64_t Examples(uint32_t client) const;
  template <typename T>
  void ComputeAs(const v1::Order& order, const Vector<T>& model, const OrderModels& models,
                 Take take);
  template <typename T>
  absl::StatusOr<AnyReport> ComputeOne(const v1::Order& order, size_t place, const LocalTask& task,
                                       const Vector<T>& model);
  // The state that the client at this place of the order starts from.
  absl::StatusOr<StateStore::State> LoadState(const v1::Order& order, size_t place) const;

  const size_t threads_;
  const size_t keep_bytes_;
  std::unique_ptr<Workers> workers_;
  CostBook costs_;
  StateStore states_;
  v1::DataSchema schema_;
  std::vector<Dataset> data_;
  std::optional<MadeClients> made_;
  v1::Model model_;
  struct Kept {
    AnyObjective objective;  // null until first needed, or where it is not kept
    size_t bytes = 0;        // that count as held
  };
  std::vector<Kept> objectives_;        // a client's own is touched by one thread at a time
  std::atomic<size_t> held_bytes_ = 0;  // by clients made on the fly
  ModelLayout layout_;
  uint64_t seed_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_BUILTIN_WORKER_H_
