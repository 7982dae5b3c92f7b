// How honest is the 95 % interval of the drift? Draws many federations whose drift
// is known, probes a random cohort of each, and counts how often the interval that
// server/measures gives holds the truth. Prints the table of docs/measures.md.
//
//   interval_coverage [repetitions [seed [seeds]]]      (default 1000 1 1)
//
// With several seeds, a row is of all their repetitions, and the last line tells
// whether the standardised errors of single seeds are spread like normal numbers.
#include <absl/strings/str_format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "common/rng.h"
#include "common/sampler.h"
#include "common/sums.h"
#include "common/tally.h"
#include "server/measures.h"
#include "tests/named_report.h"

namespace leeway {
namespace {

constexpr uint32_t kClients = 400;
constexpr uint32_t kGroups = 20;
constexpr Eigen::Index kDimension = 30;

struct Cell {
  v1::Weighting weighting;
  double sampled;  // S/M
  double share;    // rho^2 / bound
};

// Clients with known B_c and numbers of examples.
struct Federation {
  Eigen::MatrixXd b;
  std::vector<uint64_t> examples;
  uint64_t total_examples = 0;
  double truth = 0;  // |sum p_c B_c|^2
};

// B_c = r + nu_c z_c, recentred: z_c normal, the scale nu_c uniform in (0, 5) as in
// the paper's synthetic data, |r|^2 the given share of the bound sum p_c |B_c|^2.
Federation Draw(const Cell& cell, Rng& rng) {
  Federation f;
  f.b.resize(kDimension, kClients);
  Eigen::VectorXd p = Eigen::VectorXd::Constant(kClients, 1.0 / kClients);
  for (Eigen::Index c = 0; c < kClients; ++c) {
    const double scale = 5 * rng.Uniform();
    for (double& x : f.b.col(c)) x = scale * rng.Normal();
    f.examples.push_back(10 + rng.Below(191));
    f.total_examples += f.examples.back();
  }
  for (Eigen::Index c = 0; cell.weighting == v1::EXAMPLES && c < kClients; ++c) {
    p[c] = static_cast<double>(f.examples[static_cast<size_t>(c)]) /
           static_cast<double>(f.total_examples);
  }
  const Eigen::VectorXd mean = f.b * p;
  f.b.colwise() -= mean;
  const double spread = f.b.colwise().squaredNorm().dot(p.transpose());
  Eigen::VectorXd r(kDimension);
  for (double& x : r) x = rng.Normal();
  r *= std::sqrt(cell.share / (1 - cell.share) * spread) / r.norm();
  f.b.colwise() += r;
  f.truth = r.squaredNorm();
  return f;
}

v1::Task ProbeTask(v1::Weighting weighting, uint32_t groups) {
  v1::Task task;
  task.mutable_rule()->set_step_size(0.125);
  task.mutable_rule()->set_steps(10);
  task.set_weighting(weighting);
  task.set_groups(groups);
  Ask(kDrift, task, 10);
  AskForMeasures(task);
  SetRange(256 / task.rule().step_size(), 200 * kClients, task);
  return task;
}

// What a probe of a random cohort records.
v1::DriftAtSteps Probe(const Cell& cell, const Federation& f, uint64_t seed, uint64_t round) {
  const auto sample = static_cast<uint32_t>(std::lround(cell.sampled * kClients));
  const uint32_t groups = std::min(kGroups, sample / 2);
  const v1::Task task = ProbeTask(cell.weighting, groups);
  const TaskSums sums(task, kDimension);
  Tally tally(sums.shape());
  const std::vector<uint32_t> cohort = SampleCohort(seed, round, 1, kClients, sample);
  const std::vector<uint32_t> group = DrawGroups(seed, round, 1, sample, groups);
  for (size_t i = 0; i < cohort.size(); ++i) {
    NamedReport<> report(sums, cell.weighting == v1::EXAMPLES ? f.examples[cohort[i]] : 1);
    report.Set(kDrift, Vector<double>(f.b.col(cohort[i])), 10).Derive();
    const absl::Status added = report.AddTo(tally, group[i]);
    if (!added.ok()) {
      std::cerr << added << "\n";
      std::exit(1);
    }
  }
  v1::RoundRecord record;
  FillMeasures(task, tally, {kClients, f.total_examples}, nullptr, record);
  return record.drift(0);
}

// Mean over its standard error.
class ErrorCount {
 public:
  void Add(double error) {
    ++n_;
    sum_ += error;
    squares_ += error * error;
  }
  double StandardErrors() const {
    const double mean = sum_ / n_;
    return mean / std::sqrt((squares_ / n_ - mean * mean) / (n_ - 1));
  }

 private:
  double n_ = 0;
  double sum_ = 0;
  double squares_ = 0;
};

struct Asked {
  int repetitions = 1000;
  uint64_t seed = 1;
  uint64_t seeds = 1;
};

// One row of the table; true if it is as it should be. Adds the standardised error
// of every seed's unbiased mean to `scores`.
bool Row(const Cell& cell, const Asked& asked, uint64_t stream, std::vector<double>& scores) {
  int covered = 0;
  double length = 0;
  ErrorCount unbiased;
  ErrorCount plain;
  for (uint64_t seed = asked.seed; seed < asked.seed + asked.seeds; ++seed) {
    Rng rng(seed, stream, 0, Purpose::kTest);
    ErrorCount own;
    for (int i = 0; i < asked.repetitions; ++i) {
      const Federation f = Draw(cell, rng);
      const v1::DriftAtSteps drift = Probe(cell, f, rng.Next64(), 1);
      covered += drift.interval_low() <= f.truth && f.truth <= drift.interval_high();
      length += (drift.interval_high() - drift.interval_low()) / drift.drift_bound();
      // Errors in units of each federation's own bound.
      const double error = (drift.unbiased_drift_squared() - f.truth) / f.b.squaredNorm();
      own.Add(error);
      unbiased.Add(error);
      plain.Add((drift.average_drift_squared() - f.truth) / f.b.squaredNorm());
    }
    scores.push_back(own.StandardErrors());
  }
  const double all = asked.repetitions * static_cast<double>(asked.seeds);
  length /= all;
  const double coverage = 100.0 * covered / all;
  const bool good = coverage >= 94 && (cell.share < 0.5 || coverage <= 97) &&
                    std::abs(unbiased.StandardErrors()) <= 2 &&
                    std::abs(plain.StandardErrors()) > 2;
  std::cout << absl::StreamFormat("| %s | %.0f %% | %g | %.1f %% | %+.2f | %+.1f | %.4f |%s\n",
                                  cell.weighting == v1::EXAMPLES ? "examples" : "uniform",
                                  100 * cell.sampled, cell.share, coverage,
                                  unbiased.StandardErrors(), plain.StandardErrors(), length,
                                  good ? "" : " <--")
            << std::flush;
  return good;
}

// Independent standard normal numbers have a mean square of 1 and are beyond 2 in
// 4.55 % of cases.
void PrintScores(const std::vector<double>& scores) {
  const auto n = static_cast<double>(scores.size());
  double squares = 0;
  int beyond = 0;
  for (const double score : scores) {
    squares += score * score;
    beyond += std::abs(score) > 2;
  }
  std::cout << absl::StreamFormat(
      "\nErrors of single seeds, in their standard errors: %d of %d beyond 2 (expected %.1f +- "
      "%.1f), mean square %.3f (expected 1 +- %.3f)\n",
      beyond, scores.size(), 0.0455 * n, std::sqrt(0.0455 * 0.9545 * n), squares / n,
      std::sqrt(2 / n));
}

int Main(const Asked& asked) {
  std::cout << "| weights | S/M | ρ²/bound | coverage | unbiased: error in its standard errors | "
               "plain: the same | length/bound |\n|---|---|---|---|---|---|---|\n";
  bool good = true;
  uint64_t stream = 0;
  std::vector<double> scores;
  for (const v1::Weighting weighting : {v1::UNIFORM, v1::EXAMPLES}) {
    for (const double share : {0.0, 0.01, 0.5}) {
      for (const double sampled : {0.05, 0.2, 0.5}) {
        good &= Row({weighting, sampled, share}, asked, ++stream, scores);
      }
    }
  }
  if (asked.seeds > 1) PrintScores(scores);
  return good ? 0 : 1;
}

}  // namespace
}  // namespace leeway

int main(int argc, char** argv) {
  leeway::Asked asked;
  if (argc > 1) asked.repetitions = std::max(std::atoi(argv[1]), 2);
  if (argc > 2) asked.seed = std::strtoull(argv[2], nullptr, 10);
  if (argc > 3) asked.seeds = std::max<uint64_t>(std::strtoull(argv[3], nullptr, 10), 1);
  return leeway::Main(asked);
}
