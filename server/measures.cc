#include "server/measures.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "server/test_measures.h"

namespace leeway {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

constexpr size_t kAllGroups = std::numeric_limits<size_t>::max();

// The sums of a round, by name.
class Sums {
 public:
  Sums(const v1::Task& task, const Tally& tally)
      : sums_(task, tally.shape().dimension), tally_(tally) {}

  const TaskSums& names() const { return sums_; }
  bool has(absl::string_view name, uint32_t steps = 0) const {
    return sums_.number(name, steps) != TaskSums::kNone ||
           sums_.vector(name, steps) != TaskSums::kNone;
  }
  // Over all groups, or one; 0 where the task does not ask for it.
  double number(absl::string_view name, uint32_t steps = 0) const {
    const int at = sums_.number(name, steps);
    return at == TaskSums::kNone ? 0 : tally_.number(static_cast<size_t>(at));
  }
  double number_of(size_t group, absl::string_view name, uint32_t steps = 0) const {
    const int at = sums_.number(name, steps);
    return at == TaskSums::kNone ? 0 : tally_.number(group, static_cast<size_t>(at));
  }
  Vector<double> vector(absl::string_view name, uint32_t steps = 0) const {
    return tally_.vector(static_cast<size_t>(sums_.vector(name, steps)));
  }
  Vector<double> vector_of(size_t group, absl::string_view name, uint32_t steps = 0) const {
    return tally_.vector(group, static_cast<size_t>(sums_.vector(name, steps)));
  }
  // Over all clients: sum v_c, and their number.
  double weight() const { return static_cast<double>(tally_.weight()); }
  double clients() const { return static_cast<double>(tally_.clients()); }
  const Tally& tally() const { return tally_; }

 private:
  TaskSums sums_;
  const Tally& tally_;
};

void FillLoss(const Sums& sums, v1::RoundRecord& record) {
  if (!sums.has(kLoss)) return;
  const double weight = sums.weight();
  const double clients = sums.clients();
  const double loss = sums.number(kLoss) / weight;
  // sum p_c^2 (F_c - F)^2, which for equal weights is the variance over clients / S.
  double spread = (sums.number(kLossSquared) / weight - loss * loss) / clients;
  if (sums.has(kWeightedLoss)) {
    spread = (sums.number(kWeightedLossSquared) - 2 * loss * sums.number(kWeightedLoss) +
              loss * loss * sums.number(kWeight)) /
             (weight * weight);
  }
  record.set_loss(loss);
  // Of the weighted mean over clients, each of which is one observation.
  record.set_loss_standard_error(
      clients > 1 ? std::sqrt(std::max(spread, 0.0) * clients / (clients - 1)) : kNaN);
}

void FillGradient(const Sums& sums, v1::RoundRecord& record) {
  if (!sums.has(kGradient)) return;
  const double norm_squared = (sums.vector(kGradient) / sums.weight()).squaredNorm();
  const double mean_squared = sums.number(kGradientSquared) / sums.weight();
  record.set_gradient_norm(std::sqrt(norm_squared));
  record.set_dissimilarity(std::max(mean_squared - norm_squared, 0.0));
  record.set_gradient_diversity(norm_squared > 0 ? mean_squared / norm_squared : kNaN);
}

// How far the local models end from one another (docs/measures.md, 6).
void FillAgreement(const Sums& sums, v1::RoundRecord& record) {
  if (!sums.has(kDisplacementSquared)) return;
  const double mean_squared = sums.number(kDisplacementSquared) / sums.weight();
  const double norm_squared = (sums.vector(kDisplacement) / sums.weight()).squaredNorm();
  record.set_consensus_error(std::max(mean_squared - norm_squared, 0.0));
  // Of clients that count the same: of S clients' S^2 inner products, S are with themselves.
  const double clients = sums.clients();
  if (clients < 2 || mean_squared == 0 || sums.weight() != clients) return;
  record.set_pairwise_cosine((clients * norm_squared / mean_squared - 1) / (clients - 1));
}

void FillMetrics(const v1::Task& task, const Sums& sums, v1::RoundRecord& record) {
  for (const v1::Sum& sum : task.sums()) {
    if (MetricName(sum.name()).empty()) continue;
    v1::MetricMean& mean = *record.add_metrics();
    mean.set_name(std::string(MetricName(sum.name())));
    mean.set_value(sums.number(sum.name()) / sums.weight());
  }
}

// The factor f of z_c = f v_c B_c, whose plain mean over the population is
// sum p_c B_c: M / N under EXAMPLES, where v_c = n_c; 1 where all v_c are 1.
double MeanFactor(const v1::Task& task, const Population& population) {
  if (task.weighting() != v1::EXAMPLES) return 1;
  return static_cast<double>(population.clients) / static_cast<double>(population.examples);
}

// Sums of z_c over some clients.
struct DriftSums {
  uint64_t clients = 0;
  double squares = 0;     // sum |z_c|^2
  double rounding = 0;    // of the wire: sum |decoded - exact z_c|^2
  Vector<double> vector;  // sum z_c

  double Unbiased(uint64_t population) const {
    return UnbiasedSquaredNorm(vector.squaredNorm() - rounding, squares, clients, population);
  }
};

// One group of a sample: its clients' mean along the direction of the sample's mean, and the mean
// of their |z_c|^2.
struct GroupMeans {
  double length = 0;
  double square = 0;
};

double MeanOf(absl::Span<const GroupMeans> groups, double GroupMeans::*what) {
  double sum = 0;
  for (const GroupMeans& group : groups) sum += group.*what;
  return sum / static_cast<double>(groups.size());
}

double Covariance(absl::Span<const GroupMeans> groups, double GroupMeans::*a,
                  double GroupMeans::*b) {
  const double mean_a = MeanOf(groups, a);
  const double mean_b = MeanOf(groups, b);
  double sum = 0;
  for (const GroupMeans& group : groups) sum += (group.*a - mean_a) * (group.*b - mean_b);
  return sum / static_cast<double>(groups.size() - 1);
}

// How much further than the interval of a symmetric error that of a mean along one direction must
// reach, in standard errors: twice the first term of the Cornish-Fisher expansion for the
// studentised mean of a sample without replacement. Negative where the long tail is on the other
// side. docs/measures.md, 4, derives it and says why twice.
double SkewReach(const DriftSums& all, absl::Span<const GroupMeans> groups, uint64_t population,
                 double t) {
  const auto s = static_cast<double>(all.clients);
  const double size = s / static_cast<double>(groups.size());  // of a group
  const double variance = size * Covariance(groups, &GroupMeans::length, &GroupMeans::length);
  const double total = (all.squares - all.vector.squaredNorm() / s) / (s - 1);
  if (!(variance > 0) || !(total > 0)) return 0;
  const double share = std::min(1.0, variance / total);
  // Of clients, about the mean: the part of |z_c|^2 that lies along the direction.
  const double third =
      share * (size * Covariance(groups, &GroupMeans::length, &GroupMeans::square) -
               2 * all.vector.norm() / s * variance);
  const double left_out = 1 - s / static_cast<double>(population);
  const double root = std::sqrt(left_out);
  return 2 * third / std::pow(variance, 1.5) / std::sqrt(s) *
         (root / 2 + (1 + left_out) / (6 * root) * (t * t - 1));
}

// How much further down and up than the jackknife's half the interval of a squared norm must reach.
// A norm r known to +-te has a square up to r^2 + 2rte + t^2 e^2, where e^2 is the variance along
// the mean and r^2 is about e^2 above the unbiased value. Without it, a sample that happens to have
// little drift in the one direction that matters would get hardly any interval. Upwards the skew
// counts whatever its sign: the mean of a sample that misses the long tail may point the other way.
struct Reach {
  double down = 0;
  double up = 0;
};
Reach FurtherReach(const DriftSums& all, absl::Span<const GroupMeans> groups, uint64_t population) {
  if (groups.size() < 2) return {};
  const auto s = static_cast<double>(all.clients);
  const double t = StudentQuantile(groups.size() - 1);
  const double left_out = 1 - s / static_cast<double>(population);
  const double error =
      std::sqrt(left_out * Covariance(groups, &GroupMeans::length, &GroupMeans::length) /
                static_cast<double>(groups.size()));
  const double skew = SkewReach(all, groups, population, t);
  const double along = 2 * all.vector.norm() / s * error;  // change of the square with the norm
  const double widest = t + std::abs(skew);
  return {along * std::max(-skew, 0.0),
          along * std::abs(skew) + (1 + widest * widest) * error * error};
}

// The drift squared without the bias of sampling, and its interval. At no time is
// there more than one group's vector beside the tally.
void FillUnbiased(const v1::Task& task, const Sums& sums, const Population& population,
                  uint32_t steps, v1::DriftAtSteps& drift) {
  const Tally& tally = sums.tally();
  double value = drift.average_drift_squared() - drift.encoding_variance();
  double half = 0;
  Reach further;
  if (tally.clients() != population.clients) {
    const char* squared = task.weighting() == v1::EXAMPLES ? kWeightedDriftSquared : kDriftSquared;
    const double factor = MeanFactor(task, population);
    const auto all_squares = [&](const char* name) {
      return factor * factor * sums.number(name, steps);
    };
    const auto squares_of = [&](size_t group, const char* name) {
      return factor * factor * sums.number_of(group, name, steps);
    };
    const DriftSums all{tally.clients(), all_squares(squared), all_squares(kEncodingVariance),
                        factor * sums.vector(kDrift, steps)};
    const double length = all.vector.norm();
    std::vector<double> without;
    std::vector<GroupMeans> groups;
    for (size_t g = 0; g < tally.shape().groups; ++g) {
      if (tally.clients(g) == 0) continue;
      const Vector<double> group = factor * sums.vector_of(g, kDrift, steps);
      const DriftSums rest{all.clients - tally.clients(g), all.squares - squares_of(g, squared),
                           all.rounding - squares_of(g, kEncodingVariance), all.vector - group};
      const auto clients = static_cast<double>(tally.clients(g));
      groups.push_back({length > 0 ? group.dot(all.vector) / (length * clients) : 0,
                        squares_of(g, squared) / clients});
      without.push_back(rest.Unbiased(population.clients));
    }
    value = all.Unbiased(population.clients);
    half = HalfInterval(without, tally.clients(), population.clients);
    further = FurtherReach(all, groups, population.clients);
  }
  drift.set_unbiased_drift_squared(value);
  drift.set_interval_low(value - half - further.down);
  drift.set_interval_high(value + half + further.up);
}

// Iterate bias and variance of stochastic steps. The variance is that of
// sum p_c G_c over the whole population, whose clients' noises are independent:
// sum p_c^2 Var_c, of which the cohort's share is scaled up.
void FillNoise(const v1::Task& task, const Sums& sums, const Population& population, uint32_t steps,
               v1::DriftAtSteps& drift) {
  drift.set_iterate_bias_squared(kNaN);
  drift.set_pseudo_gradient_variance(kNaN);
  if (!sums.has(kPseudoGradientVariance, steps)) return;
  const auto m = static_cast<double>(population.clients);
  const double p = MeanFactor(task, population) / m;  // p_c = p v_c
  drift.set_iterate_bias_squared(sums.number(kIterateBiasSquared, steps) / sums.weight());
  drift.set_pseudo_gradient_variance(sums.number(kPseudoGradientVariance, steps) * p * p *
                                     (m / sums.clients()));
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

void FillDrift(const v1::Task& task, const Sums& sums, const Population& population,
               const v1::ConstantsResult* constants, v1::RoundRecord& record) {
  const double weight = sums.weight();
  for (const uint32_t steps : sums.names().StepsOf(kDrift)) {
    v1::DriftAtSteps& drift = *record.add_drift();
    drift.set_h(steps == 0 ? task.rule().steps() : steps);
    drift.set_average_drift_squared((sums.vector(kDrift, steps) / weight).squaredNorm());
    drift.set_drift_bound(sums.number(kDriftSquared, steps) / weight);
    if (sums.has(kEncodingVariance, steps)) {
      drift.set_encoding_variance(sums.number(kEncodingVariance, steps) / (weight * weight));
    }
    drift.set_classic_bound(ClassicBound(task, constants, drift.h(), record.dissimilarity()));
    FillUnbiased(task, sums, population, steps, drift);
    FillNoise(task, sums, population, steps, drift);
  }
}

}  // namespace

void AskForMeasures(v1::Task& task, bool losses) {
  const bool weighted = task.weighting() == v1::EXAMPLES;
  const bool encoded = task.encoding() != v1::EXACT;
  // An evaluation alone does not touch the training data.
  if (losses && !Asks(task, kTestExamples)) {
    Ask(kLoss, task);
    Ask(kLossSquared, task);
    if (weighted) {
      for (const char* name : {kWeight, kWeightedLoss, kWeightedLossSquared}) Ask(name, task);
    }
  }
  if (Asks(task, kLossDifference)) {
    Ask(kLossDifferenceSquared, task);
    if (weighted) {
      Ask(kWeightedLossDifference, task);
      Ask(kWeightedLossDifferenceSquared, task);
    }
  }
  if (Asks(task, kGradient)) Ask(kGradientSquared, task);
  std::vector<uint32_t> drifts;  // the task grows below
  for (const v1::Sum& sum : task.sums()) {
    if (sum.name() == kDrift) drifts.push_back(sum.steps());
  }
  for (const uint32_t steps : drifts) {
    Ask(kDriftSquared, task, steps);
    if (weighted) Ask(kWeightedDriftSquared, task, steps);
    if (task.repeats() > 1 && task.rule().batch_size() > 0) {
      Ask(kIterateBiasSquared, task, steps);
      Ask(kPseudoGradientVariance, task, steps);
    }
    if (encoded) Ask(kEncodingVariance, task, steps);
  }
  if (Asks(task, kDisplacement) && Asks(task, kDrift)) Ask(kDisplacementSquared, task);
  if (Asks(task, kDisplacement) && encoded) Ask(kEncodingError, task);
}

void FillMeasures(const v1::Task& task, const Tally& tally, const Population& population,
                  const v1::ConstantsResult* constants, v1::RoundRecord& record) {
  // What was not asked for is NaN.
  for (const auto set :
       {&v1::RoundRecord::set_loss, &v1::RoundRecord::set_loss_standard_error,
        &v1::RoundRecord::set_gradient_norm, &v1::RoundRecord::set_dissimilarity,
        &v1::RoundRecord::set_gradient_diversity, &v1::RoundRecord::set_consensus_error,
        &v1::RoundRecord::set_pairwise_cosine, &v1::RoundRecord::set_test_loss,
        &v1::RoundRecord::set_accuracy, &v1::RoundRecord::set_central_loss,
        &v1::RoundRecord::set_central_accuracy, &v1::RoundRecord::set_majority_accuracy,
        &v1::RoundRecord::set_auc, &v1::RoundRecord::set_central_majority_accuracy,
        &v1::RoundRecord::set_central_auc}) {
    (record.*set)(kNaN);
  }
  if (tally.clients() == 0) return;
  const Sums sums(task, tally);
  FillLoss(sums, record);
  FillGradient(sums, record);
  FillDrift(task, sums, population, constants, record);
  FillAgreement(sums, record);
  FillTests(task, tally, record);
  FillMetrics(task, sums, record);
  if (sums.has(kEncodingError)) {
    record.set_encoding_error_squared(sums.number(kEncodingError) / sums.weight());
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

double ErrorOfMean(absl::Span<const double> values, double mean) {
  const auto n = static_cast<double>(values.size());
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / (n * (n - 1)));
}

double StudentQuantile(uint64_t degrees) {
  // Both tails leave out 5 %, so the upper one 2.5 %.
  return boost::math::quantile(boost::math::students_t(static_cast<double>(degrees)), 0.975);
}

}  // namespace leeway
