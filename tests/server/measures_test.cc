#include "server/measures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "common/rng.h"
#include "common/sampler.h"
#include "tests/named_report.h"

namespace leeway {
namespace {

constexpr double kEta = 0.125;

// Clients whose drift B_c at h = 4 is known, as reports to a probe.
struct KnownClients {
  Eigen::MatrixXd b;  // one column per client
  std::vector<uint64_t> examples;

  uint64_t size() const { return examples.size(); }
  Population population() const {
    return {size(), std::accumulate(examples.begin(), examples.end(), uint64_t{0})};
  }
  // sum p_c B_c over all of them.
  Eigen::VectorXd Mean(v1::Weighting weighting) const {
    if (weighting == v1::UNIFORM) return b.rowwise().mean();
    const Eigen::Map<const Eigen::Array<uint64_t, Eigen::Dynamic, 1>> n(examples.data(), b.cols());
    return b * n.cast<double>().matrix() / n.cast<double>().sum();
  }
};

KnownClients RandomClients(Eigen::Index clients, Eigen::Index dimension, double shift,
                           uint64_t seed) {
  Rng rng(seed, 0, 0, Purpose::kTest);
  KnownClients known;
  known.b.resize(dimension, clients);
  for (double& x : known.b.reshaped()) x = rng.Normal() + shift;
  for (Eigen::Index c = 0; c < clients; ++c) known.examples.push_back(1 + rng.Below(40));
  return known;
}

v1::Task ProbeTask(v1::Weighting weighting, uint32_t groups = 1, uint32_t repeats = 0) {
  v1::Task task;
  task.mutable_rule()->set_step_size(kEta);
  task.mutable_rule()->set_steps(4);
  task.mutable_rule()->set_batch_size(repeats > 0 ? 1 : 0);
  task.set_repeats(repeats);
  task.set_weighting(weighting);
  task.set_groups(groups);
  Ask(kGradient, task);
  Ask(kDrift, task, 4);
  AskForMeasures(task);
  SetRange(256, 4000, task);
  return task;
}

// What the given clients report, each to its group.
Tally Reports(const v1::Task& task, const KnownClients& known, const std::vector<uint32_t>& cohort,
              const std::vector<uint32_t>& groups = {}) {
  const TaskSums sums(task, static_cast<size_t>(known.b.rows()));
  Tally tally(sums.shape());
  for (size_t i = 0; i < cohort.size(); ++i) {
    const uint64_t weight = task.weighting() == v1::EXAMPLES ? known.examples[cohort[i]] : 1;
    NamedReport<> report(sums, weight);
    report.Set(kDrift, Vector<double>(known.b.col(cohort[i])), 4).Derive();
    const absl::Status added = report.AddTo(tally, groups.empty() ? 0 : groups[i]);
    EXPECT_TRUE(added.ok()) << added;
  }
  return tally;
}

v1::DriftAtSteps Measure(const v1::Task& task, const Tally& tally, const KnownClients& known) {
  v1::RoundRecord record;
  FillMeasures(task, tally, known.population(), nullptr, record);
  EXPECT_EQ(record.drift_size(), 1);
  return record.drift(0);
}

std::vector<uint32_t> Members(unsigned mask) {
  std::vector<uint32_t> members;
  for (uint32_t c = 0; mask >> c != 0; ++c) {
    if ((mask >> c & 1) != 0) members.push_back(c);
  }
  return members;
}

TEST(MeasuresTest, UnbiasedEstimateIsThePlainOneWhenAllReport) {
  EXPECT_EQ(UnbiasedSquaredNorm(9.0, 5.0, 3, 3), 1.0);
  const KnownClients known = RandomClients(30, 7, 0.3, 1);
  std::vector<uint32_t> all(30);
  std::iota(all.begin(), all.end(), 0u);
  for (const v1::Weighting weighting : {v1::UNIFORM, v1::EXAMPLES}) {
    for (const uint32_t groups : {1u, 5u}) {
      const v1::Task task = ProbeTask(weighting, groups);
      const v1::DriftAtSteps drift =
          Measure(task, Reports(task, known, all, DrawGroups(1, 1, 1, 30, groups)), known);
      const double plain = drift.average_drift_squared();
      EXPECT_NEAR(plain, known.Mean(weighting).squaredNorm(), 1e-12);
      // To the last digit.
      EXPECT_EQ(drift.unbiased_drift_squared(), plain);
      EXPECT_EQ(drift.interval_low(), plain);
      EXPECT_EQ(drift.interval_high(), plain);
    }
  }
}

// Over every possible cohort, the mean of the estimate is exactly the truth.
TEST(MeasuresTest, UnbiasedEstimateIsUnbiasedOverAllCohorts) {
  const KnownClients known = RandomClients(8, 3, 0.3, 2);
  for (const v1::Weighting weighting : {v1::UNIFORM, v1::EXAMPLES}) {
    const v1::Task task = ProbeTask(weighting);
    const double truth = known.Mean(weighting).squaredNorm();
    for (int size = 2; size <= 8; ++size) {
      double unbiased = 0;
      double plain = 0;
      int cohorts = 0;
      for (unsigned mask = 0; mask < 256; ++mask) {
        if (std::popcount(mask) != size) continue;
        const auto drift = Measure(task, Reports(task, known, Members(mask)), known);
        unbiased += drift.unbiased_drift_squared();
        plain += drift.average_drift_squared();
        ++cohorts;
      }
      EXPECT_NEAR(unbiased / cohorts, truth, 1e-12) << weighting << " " << size;
      EXPECT_TRUE(size == 8 || std::abs(plain / cohorts - truth) > 1e-3)
          << weighting << " " << size;
    }
  }
}

TEST(MeasuresTest, OneClientOfManyTellsNothing) {
  const KnownClients known = RandomClients(8, 3, 0.3, 3);
  const v1::Task task = ProbeTask(v1::UNIFORM);
  const v1::DriftAtSteps drift = Measure(task, Reports(task, known, {5}), known);
  EXPECT_TRUE(std::isnan(drift.unbiased_drift_squared()));
  EXPECT_TRUE(std::isnan(drift.interval_low()));
}

// The jackknife of a mean is the textbook standard error.
TEST(MeasuresTest, JackknifeOfAMeanIsItsStandardError) {
  const std::vector<double> x = {3, 1, 4, 1, 5, 9, 2, 6};
  const double total = std::accumulate(x.begin(), x.end(), 0.0);
  double squares = 0;
  std::vector<double> without;
  for (const double value : x) {
    squares += std::pow(value - total / 8, 2);
    without.push_back((total - value) / 7);
  }
  const double standard_error = std::sqrt(squares / 7 / 8);
  EXPECT_NEAR(HalfInterval(without, 8, 1u << 30), 2.364624 * standard_error, 1e-6);
  EXPECT_NEAR(HalfInterval(without, 8, 32), 2.364624 * standard_error * std::sqrt(0.75), 1e-6);
}

// docs/measures.md, 4: by how many standard errors the tail along the mean moves an end.
double SkewAlong(const Eigen::MatrixXd& z, const std::vector<uint32_t>& cohort,
                 const std::vector<uint32_t>& groups, const Eigen::VectorXd& along,
                 const Eigen::VectorXd& mean, double t) {
  const auto s = static_cast<double>(cohort.size());
  const auto k = static_cast<double>(along.size());
  Eigen::VectorXd squares = Eigen::VectorXd::Zero(along.size());
  double total = 0;
  for (size_t i = 0; i < cohort.size(); ++i) {
    const auto size = std::count(groups.begin(), groups.end(), groups[i]);
    squares[groups[i]] += z.col(cohort[i]).squaredNorm() / static_cast<double>(size);
    total += (z.col(cohort[i]) - mean).squaredNorm() / (s - 1);
  }
  const Eigen::VectorXd off = along.array() - along.mean();
  const double sigma2 = s / k * off.squaredNorm() / (k - 1);
  const double covariance = s / k * off.dot(squares) / (k - 1);
  const double kappa = std::min(1.0, sigma2 / total) * (covariance - 2 * mean.norm() * sigma2);
  const double left = 1 - s / 60;
  return 2 * kappa / std::pow(sigma2, 1.5) / std::sqrt(s) *
         (std::sqrt(left) / 2 + (1 + left) * (t * t - 1) / (6 * std::sqrt(left)));
}

// The interval that comes from group sums is the one from the clients themselves.
TEST(MeasuresTest, IntervalNeedsOnlyTheSumsOfGroups) {
  const KnownClients known = RandomClients(60, 5, 0.5, 4);
  constexpr uint32_t kGroups = 6;
  const std::vector<uint32_t> cohort = SampleCohort(1, 1, 1, 60, 25);
  const std::vector<uint32_t> groups = DrawGroups(1, 1, 1, 25, kGroups);
  for (const v1::Weighting weighting : {v1::UNIFORM, v1::EXAMPLES}) {
    Eigen::MatrixXd z = known.b;
    for (Eigen::Index c = 0; weighting == v1::EXAMPLES && c < 60; ++c) {
      z.col(c) *= 60.0 * static_cast<double>(known.examples[static_cast<size_t>(c)]) /
                  static_cast<double>(known.population().examples);
    }
    std::vector<double> without;
    for (uint32_t g = 0; g <= kGroups; ++g) {  // the last: without none
      Eigen::VectorXd sum = Eigen::VectorXd::Zero(5);
      double squares = 0;
      uint64_t clients = 0;
      for (size_t i = 0; i < cohort.size(); ++i) {
        if (groups[i] == g) continue;
        sum += z.col(cohort[i]);
        squares += z.col(cohort[i]).squaredNorm();
        ++clients;
      }
      without.push_back(UnbiasedSquaredNorm(sum.squaredNorm(), squares, clients, 60));
    }
    const double value = without.back();
    without.pop_back();
    const double half = HalfInterval(without, 25, 60);
    const v1::Task task = ProbeTask(weighting, kGroups);
    const v1::DriftAtSteps drift = Measure(task, Reports(task, known, cohort, groups), known);
    EXPECT_NEAR(drift.unbiased_drift_squared(), value, 1e-10);
    ASSERT_GT(half, 0);
    ASSERT_GT(value, 0);
    // Means of the groups along the cohort's mean: a sample of six numbers.
    Eigen::VectorXd mean = Eigen::VectorXd::Zero(5);
    for (const uint32_t c : cohort) mean += z.col(c) / 25;
    Eigen::VectorXd along = Eigen::VectorXd::Zero(kGroups);
    for (size_t i = 0; i < cohort.size(); ++i) {
      const auto size = std::count(groups.begin(), groups.end(), groups[i]);
      along[groups[i]] += z.col(cohort[i]).dot(mean.normalized()) / static_cast<double>(size);
    }
    const double among = (along.array() - along.mean()).square().sum() / (kGroups - 1);
    const double error = std::sqrt(among / kGroups * (1 - 25.0 / 60));
    const double t = StudentQuantile(kGroups - 1);
    const double skew = SkewAlong(z, cohort, groups, along, mean, t);
    const double reach = 2 * mean.norm() * error;
    EXPECT_NEAR(drift.interval_low(), value - half - reach * std::max(0.0, -skew), 1e-10);
    EXPECT_NEAR(drift.interval_high(),
                value + half + reach * std::abs(skew) +
                    (1 + std::pow(t + std::abs(skew), 2)) * error * error,
                1e-10);
  }
}

// Drift in one direction: a sample whose mean happens to be near zero there has a
// jackknife that sees nothing, and only the further reach upwards is left.
TEST(MeasuresTest, IntervalHoldsTheTruthAlsoInOneDirection) {
  constexpr int kRepetitions = 400;
  for (const double standard_errors : {0.0, 0.5, 1.0, 2.0, 4.0}) {
    const KnownClients known = RandomClients(100, 1, standard_errors * std::sqrt(0.8 / 20), 6);
    const double truth = known.Mean(v1::UNIFORM).squaredNorm();
    const v1::Task task = ProbeTask(v1::UNIFORM, 10);
    int covered = 0;
    for (uint64_t i = 0; i < kRepetitions; ++i) {
      const std::vector<uint32_t> cohort = SampleCohort(1, i, 1, 100, 20);
      const Tally tally = Reports(task, known, cohort, DrawGroups(1, i, 1, 20, 10));
      const v1::DriftAtSteps drift = Measure(task, tally, known);
      covered += drift.interval_low() <= truth && truth <= drift.interval_high();
    }
    // 95 % less three standard errors of 400 repetitions.
    EXPECT_GE(covered, 0.95 * kRepetitions - 13) << standard_errors;
  }
}

// A few clients carry most of the drift, which has one direction: samples that miss them see too
// little drift and too little variation, and often the opposite direction. Without the reach by the
// skew 92 % of these intervals hold the truth.
TEST(MeasuresTest, IntervalHoldsTheTruthWithALongTail) {
  constexpr int kRepetitions = 1000;
  constexpr uint32_t kClients = 200;
  KnownClients known = RandomClients(kClients, 1, 0, 7);
  Rng rng(8, 0, 0, Purpose::kTest);
  for (Eigen::Index c = 0; c < kClients; ++c) {
    const double scale = rng.Uniform();  // as in the conflict data: see docs/paper.md
    known.b(0, c) = 100 * std::pow(scale, 4) * (scale - 0.5);
  }
  const double truth = known.Mean(v1::UNIFORM).squaredNorm();
  const v1::Task task = ProbeTask(v1::UNIFORM, 10);
  int covered = 0;
  for (uint64_t i = 0; i < kRepetitions; ++i) {
    const std::vector<uint32_t> cohort = SampleCohort(1, i, 1, kClients, 20);
    const Tally tally = Reports(task, known, cohort, DrawGroups(1, i, 1, 20, 10));
    const v1::DriftAtSteps drift = Measure(task, tally, known);
    covered += drift.interval_low() <= truth && truth <= drift.interval_high();
  }
  EXPECT_GE(covered, 940);
}

TEST(MeasuresTest, TooFewGroupsGiveNoInterval) {
  const KnownClients known = RandomClients(60, 5, 0.5, 5);
  const std::vector<uint32_t> cohort = SampleCohort(1, 1, 1, 60, 25);
  for (const uint32_t groups : {1u, 4u}) {  // of four, three stay empty
    const v1::Task task = ProbeTask(v1::UNIFORM, groups);
    const v1::DriftAtSteps drift = Measure(task, Reports(task, known, cohort), known);
    EXPECT_FALSE(std::isnan(drift.unbiased_drift_squared()));
    EXPECT_TRUE(std::isnan(drift.interval_low()));
    EXPECT_TRUE(std::isnan(drift.interval_high()));
  }
}

// The 97.5 % column of published tables, and the limit: the normal's 1.959964 and
// its first correction, (z^3 + z) / (4 n).
TEST(MeasuresTest, StudentQuantilesAreThoseOfTheTables) {
  const struct {
    uint64_t degrees;
    double quantile;
  } table[] = {{1, 12.70620474}, {2, 4.30265273},  {3, 3.18244631},  {4, 2.77644511},
               {5, 2.57058184},  {9, 2.26215716},  {10, 2.22813885}, {19, 2.09302405},
               {30, 2.04227246}, {60, 2.00029782}, {99, 1.98421695}, {120, 1.97993041}};
  for (const auto& row : table) {
    EXPECT_NEAR(StudentQuantile(row.degrees), row.quantile, 1e-8 * row.quantile) << row.degrees;
  }
  EXPECT_NEAR(StudentQuantile(1000000), 1.959964 + 2.3723e-6, 1e-6);
}

TEST(MeasuresTest, ClassicBoundNeedsConstants) {
  const v1::Task task = ProbeTask(v1::UNIFORM);
  const TaskSums sums(task, 2);
  Tally tally(sums.shape());
  for (const double sign : {1.0, -1.0}) {  // |g_c|^2 is 9, while their mean is 0
    NamedReport<> report(sums);
    report.Set(kGradient, Vector<double>({{3 * sign, 0}})).Derive();
    ASSERT_TRUE(report.AddTo(tally).ok());
  }
  v1::ConstantsResult constants;
  constants.set_smoothness(2);
  v1::RoundRecord record;
  FillMeasures(task, tally, {2, 2}, &constants, record);
  EXPECT_NEAR(record.dissimilarity(), 9, 1e-12);
  // eta^2 L^2 h^2 zeta^2, with the largest L_c where it is known.
  EXPECT_NEAR(record.drift(0).classic_bound(), kEta * kEta * 4 * 16 * 9, 1e-12);
  constants.set_largest_client_smoothness(5);
  record.Clear();
  FillMeasures(task, tally, {2, 2}, &constants, record);
  EXPECT_NEAR(record.drift(0).classic_bound(), kEta * kEta * 25 * 16 * 9, 1e-12);
  record.Clear();
  FillMeasures(task, tally, {2, 2}, nullptr, record);
  EXPECT_TRUE(std::isnan(record.drift(0).classic_bound()));
  EXPECT_TRUE(std::isnan(record.drift(0).iterate_bias_squared()));
  EXPECT_TRUE(std::isnan(record.drift(0).pseudo_gradient_variance()));
}

TEST(MeasuresTest, VarianceOfTheAverageCountsSquaredWeights) {
  const double variance[] = {3, 5, 10};
  const double bias[] = {0.5, 1, 4};
  const uint64_t examples[] = {1, 2, 7};
  for (const v1::Weighting weighting : {v1::UNIFORM, v1::EXAMPLES}) {
    const v1::Task task = ProbeTask(weighting, 1, 2);
    const TaskSums sums(task, 1);
    Tally tally(sums.shape());
    for (size_t c = 0; c < 3; ++c) {
      const uint64_t weight = weighting == v1::EXAMPLES ? examples[c] : 1;
      NamedReport<> report(sums, weight);
      report.Set(kIterateBiasSquared, bias[c], 4)
          .Set(kPseudoGradientVariance, static_cast<double>(weight) * variance[c], 4)
          .Derive();
      ASSERT_TRUE(report.AddTo(tally).ok());
    }
    v1::RoundRecord record;
    FillMeasures(task, tally, {3, 10}, nullptr, record);
    const bool uniform = weighting == v1::UNIFORM;
    EXPECT_NEAR(record.drift(0).iterate_bias_squared(),
                uniform ? 5.5 / 3 : (0.5 + 2 * 1 + 7 * 4) / 10, 1e-12);
    EXPECT_NEAR(record.drift(0).pseudo_gradient_variance(),
                uniform ? 6.0 / 3 : (3 + 4 * 5 + 49 * 10) / 100.0, 1e-12);
    // The same three as a sample of six: half of the terms, twice the clients.
    record.Clear();
    FillMeasures(task, tally, {6, 20}, nullptr, record);
    EXPECT_NEAR(record.drift(0).pseudo_gradient_variance(),
                uniform ? 6.0 / 6 : 2 * (3 + 4 * 5 + 49 * 10) / 400.0, 1e-12);
  }
}

// Loss and gradient alone, as an optimum phase asks.
v1::Task GradientTask(v1::Weighting weighting) {
  v1::Task task;
  task.set_weighting(weighting);
  Ask(kGradient, task);
  AskForMeasures(task);
  SetRange(256, 200, task);
  return task;
}

TEST(MeasuresTest, LossAndItsStandardErrorOverClients) {
  const v1::Task task = GradientTask(v1::UNIFORM);
  const TaskSums sums(task, 2);
  Tally tally(sums.shape());
  const double losses[] = {1.0, 2.0, 6.0};
  const double gradients[][2] = {{1, 0}, {3, 2}, {-1, 4}};
  for (int c = 0; c < 3; ++c) {
    NamedReport<> report(sums);
    const Vector<double> gradient({{gradients[c][0], gradients[c][1]}});
    report.Set(kLoss, losses[c]).Set(kGradient, gradient).Derive();
    ASSERT_TRUE(report.AddTo(tally).ok());
  }
  v1::RoundRecord record;
  FillMeasures(task, tally, {3, 3}, nullptr, record);
  EXPECT_NEAR(record.loss(), 3.0, 1e-12);
  EXPECT_NEAR(record.loss_standard_error(), std::sqrt(7.0 / 3), 1e-12);  // sd 2.6458 / sqrt 3
  EXPECT_NEAR(record.gradient_norm(), std::sqrt(1.0 + 4.0), 1e-9);       // mean (1, 2)
  // |g - mean|^2: (1,0)-(1,2)=4; (3,2)-(1,2)=4; (-1,4)-(1,2)=8.
  EXPECT_NEAR(record.dissimilarity(), 16.0 / 3, 1e-9);
  // |g|^2: 1, 13, 17; their mean over |mean|^2 = 5.
  EXPECT_NEAR(record.gradient_diversity(), 31.0 / 3 / 5, 1e-9);
  EXPECT_TRUE(std::isnan(record.accuracy()));
  EXPECT_TRUE(std::isnan(record.consensus_error()));
  EXPECT_TRUE(std::isnan(record.pairwise_cosine()));
  EXPECT_EQ(record.drift_size(), 0);
}

TEST(MeasuresTest, MetricsAreWeightedMeansUnderTheirNames) {
  v1::Task task;
  task.set_weighting(v1::EXAMPLES);
  Ask("metric/bleu", task);
  Ask("metric/auc", task);
  const TaskSums sums(task, 2);
  Tally tally(sums.shape());
  const double bleu[] = {0.5, -2.0};
  for (int c = 0; c < 2; ++c) {
    NamedReport<> report(sums, c == 0 ? 1 : 3);
    report.Set("metric/bleu", bleu[c]).Set("metric/auc", 0.75);
    ASSERT_TRUE(report.AddTo(tally).ok());
  }
  v1::RoundRecord record;
  FillMeasures(task, tally, {2, 4}, nullptr, record);
  ASSERT_EQ(record.metrics_size(), 2);
  EXPECT_EQ(record.metrics(0).name(), "bleu");
  EXPECT_NEAR(record.metrics(0).value(), (0.5 - 3 * 2.0) / 4, 1e-12);
  EXPECT_EQ(record.metrics(1).name(), "auc");
  EXPECT_NEAR(record.metrics(1).value(), 0.75, 1e-12);
}

TEST(MeasuresTest, StandardErrorOfAWeightedLossIsThatOfItsClients) {
  const v1::Task task = GradientTask(v1::EXAMPLES);
  const TaskSums sums(task, 1);
  Tally tally(sums.shape());
  const std::vector<double> losses = {1.0, 2.0, 6.0, 3.5};
  const std::vector<uint64_t> examples = {1, 10, 100, 5};
  double weight = 0;
  double mean = 0;
  for (size_t c = 0; c < losses.size(); ++c) {
    ASSERT_TRUE(NamedReport<>(sums, examples[c]).Set(kLoss, losses[c]).Derive().AddTo(tally).ok());
    weight += static_cast<double>(examples[c]);
    mean += static_cast<double>(examples[c]) * losses[c];
  }
  mean /= weight;
  double spread = 0;
  for (size_t c = 0; c < losses.size(); ++c) {
    spread += std::pow(static_cast<double>(examples[c]) / weight * (losses[c] - mean), 2);
  }
  v1::RoundRecord record;
  FillMeasures(task, tally, {4, 116}, nullptr, record);
  EXPECT_NEAR(record.loss(), mean, 1e-12);
  EXPECT_NEAR(record.loss_standard_error(), std::sqrt(4.0 / 3 * spread), 1e-12);
}

TEST(MeasuresTest, ImpossibleTestCountsDoNotWrapAround) {
  v1::Task task;
  for (const char* name : {kTestExamples, kTestLoss, kTestCorrect}) {
    v1::Sum& sum = Ask(name, task);  // without a range that would refuse them
    sum.set_smallest(-0x1p100);
    sum.set_largest(0x1p100);
  }
  const TaskSums sums(task, 1);
  for (const double forged : {-1000.0, 0x1p61}) {
    Tally tally(sums.shape());
    NamedReport<> report(sums);
    for (const char* name : {kTestExamples, kTestLoss, kTestCorrect}) report.Set(name, forged);
    ASSERT_TRUE(report.AddTo(tally).ok());
    v1::RoundRecord record;
    FillMeasures(task, tally, {1, 1}, nullptr, record);
    EXPECT_EQ(record.test_examples(), forged < 0 ? 0u : uint64_t{1} << 53);
  }
}

// A training round of clients with these gradients and displacements, by columns.
v1::RoundRecord TrainingRound(const Eigen::MatrixXd& gradients,
                              const Eigen::MatrixXd& displacements,
                              const std::vector<uint64_t>& weights, v1::Weighting weighting) {
  v1::Task task;
  task.mutable_rule()->set_step_size(kEta);
  task.mutable_rule()->set_steps(3);
  task.set_weighting(weighting);
  Ask(kGradient, task);
  Ask(kDisplacement, task);
  Ask(kDrift, task);
  AskForMeasures(task);
  uint64_t total = 0;
  for (const uint64_t weight : weights) total += weight;
  SetRange(256, total, task);
  const TaskSums sums(task, static_cast<size_t>(gradients.rows()));
  Tally tally(sums.shape());
  for (size_t c = 0; c < weights.size(); ++c) {
    const auto column = static_cast<Eigen::Index>(c);
    const Vector<double> g = gradients.col(column);
    const Vector<double> u = displacements.col(column);
    NamedReport<> report(sums, weights[c]);
    report.Set(kGradient, g).Set(kDisplacement, u);
    report.Set(kDrift, Vector<double>(g - u / (3 * kEta))).Derive();
    const absl::Status added = report.AddTo(tally);
    EXPECT_TRUE(added.ok()) << added;
  }
  v1::RoundRecord record;
  FillMeasures(task, tally, {weights.size(), total}, nullptr, record);
  return record;
}

// Diversity, consensus error and cosines, directly from the clients' vectors.
TEST(MeasuresTest, AgreementIsThatOfTheClientsVectors) {
  constexpr Eigen::Index kClients = 9;
  const Eigen::MatrixXd g = RandomClients(kClients, 6, 0.4, 7).b;
  const Eigen::MatrixXd u = RandomClients(kClients, 6, 0.2, 8).b;
  for (const v1::Weighting weighting : {v1::UNIFORM, v1::EXAMPLES}) {
    std::vector<uint64_t> weights(kClients, 1);
    if (weighting == v1::EXAMPLES) weights = {3, 40, 7, 7, 1, 12, 5, 100, 9};
    double total = 0;
    for (const uint64_t weight : weights) total += static_cast<double>(weight);
    Eigen::VectorXd p(kClients);
    for (Eigen::Index c = 0; c < kClients; ++c) {
      p[c] = static_cast<double>(weights[static_cast<size_t>(c)]) / total;
    }
    const Eigen::VectorXd mean_gradient = g * p;
    const Eigen::VectorXd mean_move = u * p;
    double diversity = 0;
    double dissimilarity = 0;
    double consensus = 0;
    for (Eigen::Index c = 0; c < kClients; ++c) {
      diversity += p[c] * g.col(c).squaredNorm() / mean_gradient.squaredNorm();
      dissimilarity += p[c] * (g.col(c) - mean_gradient).squaredNorm();
      consensus += p[c] * (u.col(c) - mean_move).squaredNorm();
    }
    const v1::RoundRecord record = TrainingRound(g, u, weights, weighting);
    EXPECT_NEAR(record.gradient_diversity(), diversity, 1e-12 * diversity);
    EXPECT_NEAR(record.dissimilarity(), dissimilarity, 1e-12 * dissimilarity);
    EXPECT_NEAR(record.consensus_error(), consensus, 1e-12 * consensus);
    if (weighting == v1::EXAMPLES) {
      EXPECT_TRUE(std::isnan(record.pairwise_cosine()));
      continue;
    }
    // Over pairs, the mean inner product by the mean square.
    double products = 0;
    for (Eigen::Index a = 0; a < kClients; ++a) {
      for (Eigen::Index b = 0; b < a; ++b) products += u.col(a).dot(u.col(b));
    }
    const double mean_product = products / (kClients * (kClients - 1) / 2);
    const double cosine = mean_product / (u.squaredNorm() / kClients);
    EXPECT_NEAR(record.pairwise_cosine(), cosine, 1e-12);
  }
}

TEST(MeasuresTest, AgreementAtItsEnds) {
  const Eigen::MatrixXd one = RandomClients(1, 4, 0, 3).b;
  const Eigen::MatrixXd same = one.replicate(1, 5);
  // All alike: no error, and all cosines are 1. EXAMPLES with equal counts is the same.
  for (const v1::Weighting weighting : {v1::UNIFORM, v1::EXAMPLES}) {
    const v1::RoundRecord record =
        TrainingRound(same, same, std::vector<uint64_t>(5, 1), weighting);
    EXPECT_NEAR(record.gradient_diversity(), 1, 1e-12);
    EXPECT_NEAR(record.consensus_error(), 0, 1e-12);
    EXPECT_NEAR(record.pairwise_cosine(), 1, 1e-12);
  }
  // Two against each other: cosine -1, and a mean gradient of 0 has no diversity.
  Eigen::MatrixXd opposed(4, 2);
  opposed << one, -one;
  const v1::RoundRecord record = TrainingRound(opposed, opposed, {1, 1}, v1::UNIFORM);
  EXPECT_TRUE(std::isnan(record.gradient_diversity()));
  EXPECT_NEAR(record.consensus_error(), one.squaredNorm(), 1e-12);
  EXPECT_NEAR(record.pairwise_cosine(), -1, 1e-12);
  // One client, or clients that stay where they are, have no cosine.
  const v1::RoundRecord single = TrainingRound(one, one, {1}, v1::UNIFORM);
  EXPECT_TRUE(std::isnan(single.pairwise_cosine()));
  EXPECT_NEAR(single.consensus_error(), 0, 1e-12);
  const Eigen::MatrixXd zero = Eigen::MatrixXd::Zero(4, 2);
  const v1::RoundRecord still = TrainingRound(opposed, zero, {1, 1}, v1::UNIFORM);
  EXPECT_TRUE(std::isnan(still.pairwise_cosine()));
  EXPECT_EQ(still.consensus_error(), 0);
}

TEST(MeasuresTest, AskForMeasuresAsksForWhatTheVectorsNeedAndNoMore) {
  const auto names = [](const v1::Task& task) {
    std::vector<std::string> out;
    for (const v1::Sum& sum : task.sums()) {
      out.push_back(sum.steps() == 0 ? sum.name() : sum.name() + "@" + std::to_string(sum.steps()));
    }
    return out;
  };
  v1::Task train;
  Ask(kDisplacement, train);
  AskForMeasures(train);
  EXPECT_THAT(names(train), ::testing::ElementsAre("displacement", "loss", "loss_squared"));
  EXPECT_THAT(
      names(ProbeTask(v1::EXAMPLES, 1, 2)),
      ::testing::UnorderedElementsAre("gradient", "drift@4", "loss", "loss_squared", "weight",
                                      "weighted_loss", "weighted_loss_squared", "gradient_squared",
                                      "drift_squared@4", "weighted_drift_squared@4",
                                      "iterate_bias_squared@4", "pseudo_gradient_variance@4"));
  v1::Task encoded;
  encoded.set_encoding(v1::INT8_WIRE);
  Ask(kDisplacement, encoded);
  Ask(kDrift, encoded);
  AskForMeasures(encoded);
  EXPECT_THAT(names(encoded), ::testing::UnorderedElementsAre(
                                  "displacement", "drift", "loss", "loss_squared", "drift_squared",
                                  "encoding_variance", "displacement_squared", "encoding_error"));
  v1::Task evaluation;  // does not touch the training data
  Ask(kTestExamples, evaluation);
  AskForMeasures(evaluation);
  EXPECT_THAT(names(evaluation), ::testing::ElementsAre("test_examples"));
}

}  // namespace
}  // namespace leeway
