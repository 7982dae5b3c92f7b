#include "server/measures.h"

#include <cmath>
#include <limits>

namespace leeway {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

size_t At(int first, size_t k = 0) { return static_cast<size_t>(first) + k; }

void FillLoss(const ReportLayout& layout, const Tally& tally, v1::RoundRecord& record) {
  if (layout.loss < 0) return;
  const auto weight = static_cast<double>(tally.weight());
  const auto clients = static_cast<double>(tally.clients());
  const double loss = tally.scalar(At(layout.loss)) / weight;
  const double variance = tally.scalar(At(layout.loss_squared)) / weight - loss * loss;
  record.set_loss(loss);
  // Of the weighted mean over clients, each of which is one observation.
  record.set_loss_standard_error(clients > 1 ? std::sqrt(std::max(variance, 0.0) / (clients - 1))
                                             : kNaN);
}

void FillGradient(const ReportLayout& layout, double step_size, const Tally& tally,
                  v1::RoundRecord& record) {
  if (layout.full_step < 0) return;
  const auto weight = static_cast<double>(tally.weight());
  const double norm_squared =
      (tally.vector(At(layout.full_step)) / (weight * step_size)).squaredNorm();
  const double mean_squared = tally.scalar(At(layout.gradient_squared)) / weight;
  record.set_gradient_norm(std::sqrt(norm_squared));
  record.set_dissimilarity(std::max(mean_squared - norm_squared, 0.0));
}

void FillDrift(const v1::Task& task, const ReportLayout& layout, const Tally& tally,
               uint64_t population, v1::RoundRecord& record) {
  const auto weight = static_cast<double>(tally.weight());
  for (size_t k = 0; k < static_cast<size_t>(task.drift_steps_size()); ++k) {
    const uint32_t asked = task.drift_steps(static_cast<int>(k));
    const Vector<double> sum = tally.vector(At(layout.first_drift, k)) / task.rule().step_size();
    const double sum_of_squares = tally.scalar(At(layout.first_drift_squared, k));
    v1::DriftAtSteps& drift = *record.add_drift();
    drift.set_h(asked == 0 ? task.rule().steps() : asked);
    drift.set_average_drift_squared((sum / weight).squaredNorm());
    drift.set_drift_bound(sum_of_squares / weight);
    if (tally.clients() == population) {
      drift.set_unbiased_drift_squared(drift.average_drift_squared());
    } else if (task.weighting() == v1::UNIFORM) {
      drift.set_unbiased_drift_squared(
          UnbiasedSquaredNorm(sum.squaredNorm(), sum_of_squares, tally.clients(), population));
    } else {
      drift.set_unbiased_drift_squared(kNaN);
    }
  }
}

void FillTest(const ReportLayout& layout, const Tally& tally, v1::RoundRecord& record) {
  if (layout.test_examples < 0) return;
  const double examples = tally.scalar(At(layout.test_examples));
  record.set_test_examples(static_cast<uint64_t>(examples));
  if (examples < 1) return;
  record.set_test_loss(tally.scalar(At(layout.test_loss)) / examples);
  record.set_accuracy(tally.scalar(At(layout.correct)) / examples);
}

}  // namespace

void FillMeasures(const v1::Task& task, const Tally& tally, uint64_t population,
                  v1::RoundRecord& record) {
  const ReportLayout layout(task);
  record.set_loss(kNaN);
  record.set_loss_standard_error(kNaN);
  record.set_gradient_norm(kNaN);
  record.set_dissimilarity(kNaN);
  record.set_test_loss(kNaN);
  record.set_accuracy(kNaN);
  if (tally.clients() == 0) return;
  FillLoss(layout, tally, record);
  FillGradient(layout, task.rule().step_size(), tally, record);
  FillDrift(task, layout, tally, population, record);
  FillTest(layout, tally, record);
}

double UnbiasedSquaredNorm(double squared_norm_of_sum, double sum_of_squared_norms, uint64_t sample,
                           uint64_t population) {
  const auto s = static_cast<double>(sample);
  const auto m = static_cast<double>(population);
  if (sample == population) return squared_norm_of_sum / (s * s);
  if (sample < 2) return kNaN;
  const double pairs = (squared_norm_of_sum - sum_of_squared_norms) / (s * (s - 1));
  return (m - 1) / m * pairs + sum_of_squared_norms / (s * m);
}

}  // namespace leeway
