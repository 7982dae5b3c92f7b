// What a client does with a task: local (stochastic) gradient descent from the
// given model, recording several h from one trajectory (paper, Section 2).
#ifndef LEEWAY_CLIENT_LOCAL_UPDATE_H_
#define LEEWAY_CLIENT_LOCAL_UPDATE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/client_report.h"
#include "client/objective.h"
#include "common/rng.h"
#include "common/sums.h"
#include "common/vectors.h"
#include "proto/federation.pb.h"

namespace leeway {

// What a task asks for, worked out once for all clients of an order.
class LocalTask {
 public:
  using Others = std::map<std::string, std::shared_ptr<const Parameters>>;  // by name

  LocalTask(const v1::Task& task, size_t dimension, Others others = {});

  const v1::Task& task() const { return task_; }
  const TaskSums& sums() const { return sums_; }
  // A vector that the order carries beside the model. An error if there is none, or it is of
  // another type.
  template <typename T>
  absl::StatusOr<const Vector<T>*> Other(const std::string& name) const;
  bool HasOther(const std::string& name) const { return others_.contains(name); }
  // Something of the training part is in the answer: the loss, or along the local path.
  bool trains() const {
    return loss != TaskSums::kNone || compares || gradient != TaskSums::kNone ||
           displacement != TaskSums::kNone || !drifts.empty() || targets || of_gradient;
  }
  bool only_tests() const { return !trains() && !curvature && !products; }

  // Is the order's other model compared with the model, on the training part or the test part?
  bool compares = false;
  bool compares_accuracies = false;
  // Places of sums that a trajectory fills; kNone where they are not asked for.
  int loss, loss_difference, gradient, displacement;
  struct DriftSum {
    uint32_t steps;  // as the task says: 0 is after the last
    int vector, iterate_bias_squared, pseudo_gradient_variance;
  };
  std::vector<DriftSum> drifts;
  bool repeats = false;      // stochastic paths beside the first are needed
  bool curvature = false;    // Hessians or counts by spectrum
  bool products = false;     // products with the Hessian
  bool tests = false;        // anything of the test part
  bool fine_tunes = false;   // after local steps
  bool targets = false;      // what the training targets are
  bool of_gradient = false;  // something that is made of the gradient at the start

 private:
  const v1::Task& task_;  // outlives this
  TaskSums sums_;
  const Others others_;
};

// +1 or -1, for signed_gradient; `rng` is the task's.
double SignOf(Rng rng);
// g.(P g) with the task's inverse Hessian P.
absl::StatusOr<double> NewtonDecrement(const v1::Task& task, const Vector<double>& gradient);

// Takes the local steps of `task` from `start`. Displacements u = w - w^(h) are
// accumulated themselves (u += step_size * gradient at w - u), so that the drift after
// one full-batch step is exactly 0. Batches: every pass is a fresh
// permutation drawn from `rng`, cut into batch_size pieces, the last may be
// smaller. With repeats R > 1 (and batches), R - 1 further paths with streams of
// their own and one of full-batch steps go along, for the iterate bias and the
// variance; vectors are of the first path. Fails with InvalidArgument if a non-finite value
// appears, naming the step and the remedy (lower step_size).
// `state` is what the client's algorithm keeps between rounds, if it does: empty before
// the first, and moved on by the task.
template <typename T>
absl::StatusOr<ClientReport<T>> RunTask(Objective<T>& objective, const LocalTask& task,
                                        ConstVectorRef<T> start, Rng rng, Vector<T>& state);
template <typename T>
absl::StatusOr<ClientReport<T>> RunTask(Objective<T>& objective, const LocalTask& task,
                                        ConstVectorRef<T> start, Rng rng) {
  Vector<T> none;
  return RunTask<T>(objective, task, start, rng, none);
}
template <typename T>
absl::StatusOr<ClientReport<T>> RunTask(Objective<T>& objective, const v1::Task& task,
                                        ConstVectorRef<T> start, Rng rng) {
  return RunTask<T>(objective, LocalTask(task, static_cast<size_t>(start.size())), start, rng);
}

}  // namespace leeway

#endif  // LEEWAY_CLIENT_LOCAL_UPDATE_H_
