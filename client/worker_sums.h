// WorkerSums: what to ask a worker for so that a task can be answered, and the report made of
// what it answers. A worker computes little: what follows from that is worked out here
// (docs/worker.md). Constant after construction.
#ifndef LEEWAY_CLIENT_WORKER_SUMS_H_
#define LEEWAY_CLIENT_WORKER_SUMS_H_

#include <Eigen/Core>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/client_report.h"
#include "client/worker_messages.h"
#include "common/model_file.h"
#include "common/sums.h"
#include "proto/federation.pb.h"

namespace leeway {

class WorkerSums {
 public:
  // `task` must outlive this.
  WorkerSums(const v1::Task& task, size_t dimension);

  const std::vector<AskedSum>& asked() const { return asked_; }
  // A product with the Hessian is asked for: the report's only vector, which the caller fills in.
  bool products() const { return products_; }
  // The loss at the order's other model is needed, too: Complete wants it as kOtherLoss.
  bool compares() const {
    return sums_.number(kLossDifference) != TaskSums::kNone ||
           sums_.number(kLossDifferenceAbove) != TaskSums::kNone;
  }
  static constexpr char kOtherLoss[] = "other loss";  // not a name of the protocol
  // The tensors of the answer's file. The first values of it are the report's vectors.
  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  // Nothing of the training part is asked for.
  bool only_tests() const { return only_tests_; }

  // Completes a report: `report.vectors` holds all values of the file, and keeps those of
  // the task. Errors name the sum.
  // `sign` is that of signed_gradient.
  template <typename T>
  absl::Status Complete(const std::map<std::string, double>& numbers, uint64_t weight, double sign,
                        ClientReport<T>& report) const;

 private:
  // Numbers of the task that are made of gradient and Hessian; 0 where they are not asked for.
  struct OfTensors {
    double hessian_distance = 0;
    Eigen::MatrixXd difference = {};  // of the Hessian and the task's reference
    double newton_decrement = 0;
    double largest_gradient_squared = 0;
  };

  // Adds it, unless it is there.
  void AskFor(absl::string_view name, uint32_t steps, v1::SumShape shape);
  void AskForNumber(const v1::Sum& sum, size_t place);
  // The value of one number of the task.
  absl::StatusOr<double> ValueOf(const v1::Sum& sum, size_t place,
                                 const std::map<std::string, double>& numbers, uint64_t weight,
                                 const OfTensors& of_tensors) const;
  // The tensor of this name in the answer's file; null if it was not asked for.
  template <typename T>
  const T* Find(absl::string_view name, absl::Span<const T> values) const;
  template <typename T>
  absl::StatusOr<OfTensors> Measure(absl::Span<const T> values) const;

  const v1::Task& task_;
  const size_t dimension_;
  const TaskSums sums_;
  std::vector<AskedSum> asked_;
  std::vector<TensorSpec> tensors_;
  bool only_tests_ = true;
  bool products_ = false;
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_WORKER_SUMS_H_
