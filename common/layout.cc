#include "common/layout.h"

#include <algorithm>

namespace leeway {

ReportLayout::ReportLayout(const v1::Task& task) {
  const int drifts = task.drift_steps_size();

  int next = 0;
  if (task.displacement()) displacement = next++;
  if (task.full_step()) full_step = next++;
  if (drifts > 0) first_drift = next;
  vectors = static_cast<size_t>(next + drifts);

  // An evaluation alone does not touch the training data.
  const bool only_evaluate = task.evaluate() && vectors == 0;
  next = 0;
  if (!only_evaluate) {
    loss = next++;
    loss_squared = next++;
    if (task.weighting() == v1::EXAMPLES) {
      first_weighted_loss = next;
      next += 3;
    }
  }
  if (task.full_step()) gradient_squared = next++;
  if (drifts > 0) first_drift_squared = next;
  next += drifts;
  if (drifts > 0 && task.weighting() == v1::EXAMPLES) {
    first_weighted_drift_squared = next;
    next += drifts;
  }
  if (drifts > 0 && task.repeats() > 1 && task.rule().batch_size() > 0) {
    first_iterate_bias = next;
    first_variance = next + drifts;
    next += 2 * drifts;
  }
  if (task.evaluate()) {
    test_examples = next++;
    test_loss = next++;
    correct = next++;
  }
  if (task.count() != v1::QUANTITY_UNSPECIFIED) {
    first_count = next;
    next += task.thresholds_size();
  }
  if (task.displacement() && task.encoding() != v1::EXACT) encoding_error = next++;
  if (drifts > 0 && task.encoding() != v1::EXACT) {
    first_encoding_variance = next;
    next += drifts;
  }
  scalars = static_cast<size_t>(next);
}

TallyShape ReportLayout::Shape(const v1::Task& task, size_t dimension) const {
  TallyShape shape;
  shape.dimension = dimension;
  // A Hessian has one vector per column, after all others.
  shape.vectors = vectors + (task.hessian() ? dimension : 0);
  shape.scalars = scalars;
  shape.groups = std::max<size_t>(1, task.groups());
  shape.fraction_bits = static_cast<int>(task.fraction_bits());
  shape.max_update = task.max_update();
  return shape;
}

}  // namespace leeway
