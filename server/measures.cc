#include "server/measures.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

namespace leeway {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

constexpr size_t kAllGroups = std::numeric_limits<size_t>::max();

size_t At(int first, size_t k = 0) { return static_cast<size_t>(first) + k; }

void FillLoss(const ReportLayout& layout, const Tally& tally, v1::RoundRecord& record) {
  if (layout.loss < 0) return;
  const auto weight = static_cast<double>(tally.weight());
  const auto clients = static_cast<double>(tally.clients());
  const double loss = tally.scalar(At(layout.loss)) / weight;
  // sum p_c^2 (F_c - F)^2, which for equal weights is the variance over clients / S.
  double spread = (tally.scalar(At(layout.loss_squared)) / weight - loss * loss) / clients;
  if (layout.first_weighted_loss >= 0) {
    const auto sum = [&](size_t k) { return tally.scalar(At(layout.first_weighted_loss, k)); };
    spread = (sum(2) - 2 * loss * sum(1) + loss * loss * sum(0)) / (weight * weight);
  }
  record.set_loss(loss);
  // Of the weighted mean over clients, each of which is one observation.
  record.set_loss_standard_error(
      clients > 1 ? std::sqrt(std::max(spread, 0.0) * clients / (clients - 1)) : kNaN);
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

// The factor f of z_c = f v_c B_c, whose plain mean over the population is
// sum p_c B_c: M / N under EXAMPLES, where v_c = n_c; 1 where all v_c are 1.
double MeanFactor(const v1::Task& task, const Population& population) {
  if (task.weighting() != v1::EXAMPLES) return 1;
  return static_cast<double>(population.clients) / static_cast<double>(population.examples);
}

// Sums of z_c over some clients.
struct Sums {
  uint64_t clients = 0;
  double squares = 0;     // sum |z_c|^2
  double rounding = 0;    // of the wire: sum |decoded - exact z_c|^2
  Vector<double> vector;  // sum z_c

  double Unbiased(uint64_t population) const {
    return UnbiasedSquaredNorm(vector.squaredNorm() - rounding, squares, clients, population);
  }
};

// The variance of a sample's mean along its own direction, from the lengths of its
// groups' means in that direction.
double VarianceAlong(const std::vector<double>& lengths, uint64_t sample, uint64_t population) {
  const auto k = static_cast<double>(lengths.size());
  double mean = 0;
  for (const double length : lengths) mean += length / k;
  double squares = 0;
  for (const double length : lengths) squares += (length - mean) * (length - mean);
  const double left_out = 1 - static_cast<double>(sample) / static_cast<double>(population);
  return left_out * squares / (k * (k - 1));
}

// The drift squared without the bias of sampling, and its interval. At no time is
// there more than one group's vector beside the tally. The interval reaches further
// up than down: a norm r known to +-te has a square up to r^2 + 2rte + t^2 e^2,
// where e^2 is the variance along the mean and r^2 is about e^2 above the unbiased
// value. Without it, a sample that happens to have little drift in the one
// direction that matters would get hardly any interval (docs/measures.md, 4).
void FillUnbiased(const v1::Task& task, const ReportLayout& layout, const Tally& tally,
                  const Population& population, size_t k, v1::DriftAtSteps& drift) {
  double value = drift.average_drift_squared() - drift.encoding_variance();
  double half = 0;
  double further_up = 0;
  if (tally.clients() != population.clients) {
    const bool weighted = task.weighting() == v1::EXAMPLES;
    const size_t vector = At(layout.first_drift, k);
    const int squares = weighted ? layout.first_weighted_drift_squared : layout.first_drift_squared;
    const double factor = MeanFactor(task, population);
    const double unit = factor / task.rule().step_size();
    const auto square = [&](size_t group_or_all, int scalar) {
      if (scalar < 0) return 0.0;
      const size_t at = At(scalar, k);
      return factor * factor *
             (group_or_all == kAllGroups ? tally.scalar(at) : tally.scalar(group_or_all, at));
    };
    const Sums all{tally.clients(), square(kAllGroups, squares),
                   square(kAllGroups, layout.first_encoding_variance), unit * tally.vector(vector)};
    const double length = all.vector.norm();
    std::vector<double> without, lengths;
    for (size_t g = 0; g < tally.shape().groups; ++g) {
      if (tally.clients(g) == 0) continue;
      const Vector<double> group = unit * tally.vector(g, vector);
      const Sums rest{all.clients - tally.clients(g), all.squares - square(g, squares),
                      all.rounding - square(g, layout.first_encoding_variance), all.vector - group};
      lengths.push_back(length > 0 ? group.dot(all.vector) /
                                         (length * static_cast<double>(tally.clients(g)))
                                   : 0);
      without.push_back(rest.Unbiased(population.clients));
    }
    value = all.Unbiased(population.clients);
    half = HalfInterval(without, tally.clients(), population.clients);
    if (lengths.size() > 1) {
      const double t = StudentQuantile(lengths.size() - 1);
      further_up = (1 + t * t) * VarianceAlong(lengths, tally.clients(), population.clients);
    }
  }
  drift.set_unbiased_drift_squared(value);
  drift.set_interval_low(value - half);
  drift.set_interval_high(value + half + further_up);
}

// Iterate bias and variance of stochastic steps. The variance is that of
// sum p_c G_c over the whole population, whose clients' noises are independent:
// sum p_c^2 Var_c, of which the cohort's share is scaled up.
void FillNoise(const v1::Task& task, const ReportLayout& layout, const Tally& tally,
               const Population& population, size_t k, v1::DriftAtSteps& drift) {
  drift.set_iterate_bias_squared(kNaN);
  drift.set_pseudo_gradient_variance(kNaN);
  if (layout.first_variance < 0) return;
  const auto m = static_cast<double>(population.clients);
  const auto s = static_cast<double>(tally.clients());
  const double p = MeanFactor(task, population) / m;  // p_c = p v_c
  drift.set_iterate_bias_squared(tally.scalar(At(layout.first_iterate_bias, k)) /
                                 static_cast<double>(tally.weight()));
  drift.set_pseudo_gradient_variance(tally.scalar(At(layout.first_variance, k)) * p * p * (m / s));
}

// eta^2 L^2 h^2 zeta^2. Older theory needs the L of every client, not of F.
double ClassicBound(const v1::Task& task, const v1::ConstantsResult* constants, double h,
                    double dissimilarity) {
  if (constants == nullptr || h == 0) return kNaN;
  const double largest = constants->largest_client_smoothness();
  const double smoothness = largest > 0 ? largest : constants->smoothness();
  const double growth = task.rule().step_size() * smoothness * h;
  return growth * growth * dissimilarity;
}

void FillDrift(const v1::Task& task, const ReportLayout& layout, const Tally& tally,
               const Population& population, const v1::ConstantsResult* constants,
               v1::RoundRecord& record) {
  const auto weight = static_cast<double>(tally.weight());
  for (size_t k = 0; k < static_cast<size_t>(task.drift_steps_size()); ++k) {
    const uint32_t asked = task.drift_steps(static_cast<int>(k));
    const Vector<double> sum = tally.vector(At(layout.first_drift, k)) / task.rule().step_size();
    v1::DriftAtSteps& drift = *record.add_drift();
    drift.set_h(asked == 0 ? task.rule().steps() : asked);
    drift.set_average_drift_squared((sum / weight).squaredNorm());
    drift.set_drift_bound(tally.scalar(At(layout.first_drift_squared, k)) / weight);
    if (layout.first_encoding_variance >= 0) {
      drift.set_encoding_variance(tally.scalar(At(layout.first_encoding_variance, k)) /
                                  (weight * weight));
    }
    drift.set_classic_bound(ClassicBound(task, constants, drift.h(), record.dissimilarity()));
    FillUnbiased(task, layout, tally, population, k, drift);
    FillNoise(task, layout, tally, population, k, drift);
  }
}

// Counts up to here are exact, and fit into the record.
constexpr double kMostExamples = 0x1p53;

// Test results of one group, pooled over its examples.
struct TestSums {
  TestSums(const ReportLayout& layout, const Tally& tally, uint32_t group) {
    if (layout.test_examples < 0 || group >= tally.shape().groups) return;
    examples = std::clamp(tally.scalar(group, At(layout.test_examples)), 0.0, kMostExamples);
    if (examples < 1) return;
    loss = tally.scalar(group, At(layout.test_loss)) / examples;
    accuracy = tally.scalar(group, At(layout.correct)) / examples;
  }

  double examples = 0;
  double loss = kNaN;
  double accuracy = kNaN;
};

void FillTest(const ReportLayout& layout, const Tally& tally, v1::RoundRecord& record) {
  const TestSums clients(layout, tally, kClientGroup);
  record.set_test_examples(static_cast<uint64_t>(clients.examples));
  record.set_test_loss(clients.loss);
  record.set_accuracy(clients.accuracy);
  const TestSums central(layout, tally, kEvaluatorGroup);
  record.set_central_examples(static_cast<uint64_t>(central.examples));
  record.set_central_loss(central.loss);
  record.set_central_accuracy(central.accuracy);
}

}  // namespace

void FillMeasures(const v1::Task& task, const Tally& tally, const Population& population,
                  const v1::ConstantsResult* constants, v1::RoundRecord& record) {
  const ReportLayout layout(task);
  record.set_loss(kNaN);
  record.set_loss_standard_error(kNaN);
  record.set_gradient_norm(kNaN);
  record.set_dissimilarity(kNaN);
  record.set_test_loss(kNaN);
  record.set_accuracy(kNaN);
  record.set_central_loss(kNaN);
  record.set_central_accuracy(kNaN);
  if (tally.clients() == 0) return;
  FillLoss(layout, tally, record);
  FillGradient(layout, task.rule().step_size(), tally, record);
  FillDrift(task, layout, tally, population, constants, record);
  FillTest(layout, tally, record);
  if (layout.encoding_error >= 0) {
    record.set_encoding_error_squared(tally.scalar(At(layout.encoding_error)) /
                                      static_cast<double>(tally.weight()));
  }
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

double HalfInterval(absl::Span<const double> without, uint64_t sample, uint64_t population) {
  if (without.size() < 2) return kNaN;
  const auto k = static_cast<double>(without.size());
  double mean = 0;
  for (const double estimate : without) mean += estimate / k;
  double squares = 0;
  for (const double estimate : without) squares += (estimate - mean) * (estimate - mean);
  const double left_out = 1 - static_cast<double>(sample) / static_cast<double>(population);
  const double variance = (k - 1) / k * squares * left_out;
  return StudentQuantile(without.size() - 1) * std::sqrt(variance);
}

double StudentQuantile(uint64_t degrees) {
  // P(|T| <= t) for whole degrees of freedom n is a finite sum in the angle
  // theta = atan(t / sqrt n) (Abramowitz & Stegun, 26.7.3 and 26.7.4).
  const auto n = static_cast<double>(degrees);
  const bool odd = degrees % 2 == 1;
  const auto probability = [&](double theta) {
    const double cosine = std::cos(theta);
    double term = odd ? cosine : 1;
    double sum = degrees == 1 ? 0 : term;
    for (double i = odd ? 3 : 2; i < n - 1; i += 2) {
      term *= cosine * cosine * (i - 1) / i;
      sum += term;
    }
    return odd ? 2 / std::numbers::pi * (theta + std::sin(theta) * sum) : std::sin(theta) * sum;
  };
  double low = 0;
  double high = std::numbers::pi / 2;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (probability(middle) < 0.95 ? low : high) = middle;
  }
  return std::sqrt(n) * std::tan((low + high) / 2);
}

}  // namespace leeway
