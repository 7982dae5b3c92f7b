// ProcessWorker: another program computes, behind a socket (docs/worker.md). It starts the
// program, asks it for one client after the other, and starts it again when it ends, hangs
// or answers nonsense; that costs at most the client that it worked for its place in the
// round. Not thread-safe: one order at a time.
#ifndef LEEWAY_CLIENT_PROCESS_WORKER_H_
#define LEEWAY_CLIENT_PROCESS_WORKER_H_

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/shared_file.h"
#include "client/worker.h"
#include "client/worker_messages.h"
#include "client/worker_program.h"
#include "client/worker_sums.h"
#include "common/model_layout.h"
#include "common/vectors.h"
#include "proto/federation.pb.h"

namespace leeway {

struct ProcessWorkerOptions {
  std::string command;                           // started by /bin/sh,
  int fd = -1;                                   // or a worker that runs, on this descriptor
  absl::Duration start = absl::Seconds(120);     // longest time until it is ready
  absl::Duration deadline = absl::Seconds(600);  // longest time for one client's answer
  // Called when the worker on `fd` has gone, which nobody can start again. Does not return:
  // a report of failure would cost its clients their place.
  std::function<void()> on_gone = [] { std::abort(); };
};

class ProcessWorker : public Worker {
 public:
  // Starts the program, and learns from it which clients it hosts.
  static absl::StatusOr<std::unique_ptr<ProcessWorker>> Start(const ProcessWorkerOptions& options);

  // Tells a worker that runs, on this descriptor, why there will be no run.
  static void Refuse(int fd, absl::string_view error);

  v1::JoinRequest Hosted() const override { return hosted_; }
  size_t clients() const override { return static_cast<size_t>(hosted_.clients_size()); }
  std::string ClientId(uint32_t client) const override {
    return hosted_.clients(static_cast<int>(client)).id();
  }
  absl::Status Prepare(const v1::Welcome& welcome) override;
  absl::StatusOr<Parameters> Decode(absl::string_view file) const override;
  absl::Status Compute(const v1::Order& order, const OrderModels& models, Take take) override;

  // The run is over; `error` says why, if that was not its end.
  void Finish(absl::string_view error);

 private:
  struct ModelFile {
    SharedFile file;
    std::string sha256;  // of the model in it
  };

  explicit ProcessWorker(const ProcessWorkerOptions& options) : options_(options) {}

  // A program that has said hello and, within a run, is prepared for it.
  absl::Status EnsureReady();
  absl::Status Greet();
  absl::Status SendPrepare();
  // Sends a line and waits for the next one.
  absl::StatusOr<std::string> Ask(const std::string& line, absl::Duration longest);
  // The files that the program reads this order's models from.
  absl::Status WriteModels(const v1::Order& order, const OrderModels& models);
  absl::Status WriteModel(const v1::ModelRef& ref, const Parameters& model, ModelFile& file);
  template <typename T>
  absl::StatusOr<AnyReport> ComputeOne(const v1::Order& order, const OrderModels& models,
                                       uint32_t client, const WorkerSums& sums);
  // The client's Hessian times v at w, from the gradients of two more orders like this one.
  template <typename T>
  absl::StatusOr<Vector<double>> HessianVector(const WorkerOrder& order, const Vector<double>& w,
                                               const Vector<double>& v);
  template <typename T>
  absl::StatusOr<Vector<double>> GradientAt(WorkerOrder order, const Vector<double>& w);
  // H_c v or H_c (H_c v - u), whichever the task asks for.
  template <typename T>
  absl::Status FillProduct(const v1::Task& task, const WorkerOrder& order,
                           const OrderModels& models, ClientReport<T>& report);
  // The loss at the other model of this order: any worker can tell it.
  absl::StatusOr<double> OtherLoss(WorkerOrder order);
  // The worker's answer to this order, which gets its number here; if it ends, it is
  // started and asked again.
  absl::StatusOr<WorkerReply> Answer(WorkerOrder order);
  // Sends the order once and waits for the reply to it. Unavailable: the worker has ended.
  absl::StatusOr<WorkerReply> Exchange(const WorkerOrder& order);
  // The values in the answer's file.
  template <typename T>
  absl::Status ReadVectors(const WorkerSums& sums, std::vector<T>& values) const;
  // Gives up on the program after nonsense or silence; one that is not ours goes on.
  void Drop();

  // Constant after Start.
  const ProcessWorkerOptions options_;
  v1::JoinRequest hosted_;

  WorkerProgram program_;
  std::string how_it_ended_;  // the last time
  bool prepared_ = false;     // the program has had the prepare message
  // Of the run.
  std::string prepare_;  // the message; empty before the first run
  ModelLayout layout_;
  uint64_t seed_ = 0;
  ModelFile model_;
  std::map<std::string, ModelFile> others_;  // of the last order, by name
  ModelFile nearby_;                         // where a gradient is asked for, beside the model
  SharedFile answer_;
  uint64_t orders_ = 0;  // sent so far
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_PROCESS_WORKER_H_
