// What a client does with a task: local (stochastic) gradient descent from the
// given model, recording several h from one trajectory (paper, Section 2).
#ifndef LEEWAY_CLIENT_LOCAL_UPDATE_H_
#define LEEWAY_CLIENT_LOCAL_UPDATE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "client/objective.h"
#include "common/layout.h"
#include "common/rng.h"
#include "common/vectors.h"
#include "proto/federation.pb.h"

namespace leeway {

// One client's answer to a task, laid out by ReportLayout. The vectors are in
// the model's own precision: what is added to a tally is the same whether it
// was sent as it is or summed in this process first.
template <typename T>
struct ClientReport {
  uint64_t weight = 1;
  std::vector<double> scalars;
  std::vector<T> vectors;  // layout.vectors * dimension
};

// Takes the local steps of `task` from `start`. Displacements u = w - w^(h) are
// accumulated themselves (u += step_size * gradient at w - u), so u^(1) is
// exactly full_step for full-batch steps. Batches: every pass is a fresh
// permutation drawn from `rng`, cut into batch_size pieces, the last may be
// smaller. With repeats R > 1 (and batches), R - 1 further paths with streams of
// their own and one of full-batch steps go along, for the iterate bias and the
// variance; vectors are of the first path. Fails with InvalidArgument if a non-finite value
// appears, naming the step and the remedy (lower step_size).
template <typename T>
absl::StatusOr<ClientReport<T>> RunTask(Objective<T>& objective, const v1::Task& task,
                                        ConstVectorRef<T> start, Rng rng);

}  // namespace leeway

#endif  // LEEWAY_CLIENT_LOCAL_UPDATE_H_
