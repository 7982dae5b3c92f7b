// What a report to a task consists of: which vectors and scalars, in what order.
// Both sides derive it from the Task, so that a report needs no names.
#ifndef LEEWAY_COMMON_LAYOUT_H_
#define LEEWAY_COMMON_LAYOUT_H_

#include <cstddef>

#include "common/tally.h"
#include "proto/federation.pb.h"

namespace leeway {

// Indices of a report's vectors and scalars; -1 where the task asks for none.
struct ReportLayout {
  explicit ReportLayout(const v1::Task& task);

  // Vectors. drift(k) is step_size * B_c at the k-th of Task.drift_steps.
  int displacement = -1;
  int full_step = -1;
  int first_drift = -1;
  size_t vectors = 0;

  // Scalars, each multiplied by the client's weight when added.
  int loss = -1;          // F_c at the start
  int loss_squared = -1;  // F_c^2
  // v_c, v_c F_c and v_c F_c^2, with weighting EXAMPLES: summed with the weight.
  int first_weighted_loss = -1;
  int gradient_squared = -1;     // |grad F_c|^2, with full_step
  int first_drift_squared = -1;  // |B_c|^2 at the k-th of drift_steps
  // v_c |B_c|^2, with weighting EXAMPLES: summed with the weight, v_c^2 |B_c|^2.
  int first_weighted_drift_squared = -1;
  // With repeats, at the k-th of drift_steps: |delta_c|^2, and v_c times the
  // variance of the client's pseudo-gradient.
  int first_iterate_bias = -1;
  int first_variance = -1;
  int test_examples = -1;   // with evaluate
  int test_loss = -1;       // summed over test examples
  int correct = -1;         // number of test examples answered correctly
  int first_count = -1;     // with count: 1 if the quantity is above the k-th threshold
  int encoding_error = -1;  // |decoded - exact displacement|^2, with a short encoding
  // v_c |decoded - exact B_c|^2 at the k-th of drift_steps, with a short encoding.
  int first_encoding_variance = -1;
  size_t scalars = 0;

  TallyShape Shape(const v1::Task& task, size_t dimension) const;
};

}  // namespace leeway

#endif  // LEEWAY_COMMON_LAYOUT_H_
