// How honest is the 95 % interval of the drift? Draws many federations whose drift
// is known, probes a random cohort of each, and counts how often the interval that
// server/measures gives holds the truth. Prints the tables of docs/measures.md.
//
//   interval_coverage [repetitions [seed [seeds]]]      (default 1000 1 1)
//
// With several seeds, a row is of all their repetitions, and the last line tells
// whether the standardised errors of single seeds are spread like normal numbers.
#include <absl/strings/str_format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "common/rng.h"
#include "common/sampler.h"
#include "common/sums.h"
#include "common/synthetic.h"
#include "common/tally.h"
#include "server/measures.h"
#include "tests/named_report.h"

namespace leeway {
namespace {

constexpr uint32_t kClients = 400;
constexpr uint32_t kFewerClients = 200;  // of the second table
constexpr uint32_t kGroups = 20;
constexpr Eigen::Index kDimension = 30;

struct Cell {
  v1::Weighting weighting = v1::UNIFORM;
  double sampled = 0;  // S/M
  double share = 0;    // rho^2 / bound
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

// Clients whose drift is along one direction, but for a tenth of it: B_c = (1/2 + s_c) u + z_c/10,
// where the sizes s_c of this population are made by `size`, with mean 0 and variance 1.
Federation OneDirection(const std::function<double(Rng&)>& size, Rng& rng) {
  Federation f;
  f.b.resize(kDimension, kFewerClients);
  Eigen::VectorXd sizes(kFewerClients);
  for (double& s : sizes) s = size(rng);
  sizes.array() -= sizes.mean();
  sizes *= std::sqrt(static_cast<double>(kFewerClients) / sizes.squaredNorm());
  for (Eigen::Index c = 0; c < kFewerClients; ++c) {
    for (double& x : f.b.col(c)) x = 0.1 * rng.Normal();
    f.b(0, c) += 0.5 + sizes[c];
    f.examples.push_back(1);
  }
  f.total_examples = kFewerClients;
  f.truth = f.b.rowwise().mean().squaredNorm();
  return f;
}

// A client's loss is w'Aw/2 - b'w, but for a constant.
struct Quadratic {
  Eigen::MatrixXd a;
  Eigen::VectorXd b;
};

std::vector<Quadratic> ConflictClients(Rng& rng) {
  SyntheticProblem problem;
  problem.clients = kFewerClients;
  problem.dimension = kDimension;
  problem.conflict = 0.1;
  problem.seed = rng.Next64();
  const SyntheticClients clients(problem);
  std::vector<Quadratic> out;
  for (uint32_t c = 0; c < kFewerClients; ++c) {
    const SyntheticClient client = clients.Make(c);
    const Eigen::Map<const Eigen::MatrixXd> x(client.x.data(), kDimension, problem.samples);
    const Eigen::Map<const Eigen::VectorXd> y(client.y.data(), problem.samples);
    out.push_back({x * x.transpose() / problem.samples, x * y / problem.samples});
  }
  return out;
}

// The drift at w* of `leeway data synthetic --conflict 0.1` after each of these numbers of steps.
std::vector<Federation> ConflictData(const std::vector<int>& steps, Rng& rng) {
  constexpr double kEta = 0.005;
  const std::vector<Quadratic> clients = ConflictClients(rng);
  Quadratic all{Eigen::MatrixXd::Zero(kDimension, kDimension), Eigen::VectorXd::Zero(kDimension)};
  for (const Quadratic& client : clients) {
    all.a += client.a;
    all.b += client.b;
  }
  const Eigen::VectorXd optimum = all.a.ldlt().solve(all.b);
  std::vector<Federation> out(steps.size());
  for (Federation& f : out) {
    f.b.resize(kDimension, kFewerClients);
    f.examples.assign(kFewerClients, 1);
    f.total_examples = kFewerClients;
  }
  for (size_t c = 0; c < clients.size(); ++c) {
    const Eigen::VectorXd gradient = clients[c].a * optimum - clients[c].b;
    Eigen::VectorXd u = Eigen::VectorXd::Zero(kDimension);  // w* - w
    size_t next = 0;
    for (int h = 1; next < steps.size(); ++h) {
      u += kEta * (gradient - clients[c].a * u);
      if (h != steps[next]) continue;
      out[next++].b.col(static_cast<Eigen::Index>(c)) = gradient - u / (kEta * h);
    }
  }
  for (Federation& f : out) f.truth = f.b.rowwise().mean().squaredNorm();
  return out;
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
  const auto clients = static_cast<uint32_t>(f.b.cols());
  const auto sample = static_cast<uint32_t>(std::lround(cell.sampled * clients));
  const uint32_t groups = std::min(kGroups, sample / 2);
  const v1::Task task = ProbeTask(cell.weighting, groups);
  const TaskSums sums(task, kDimension);
  Tally tally(sums.shape());
  const std::vector<uint32_t> cohort = SampleCohort(seed, round, 1, clients, sample);
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
  FillMeasures(task, tally, {clients, f.total_examples}, nullptr, record);
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
  const bool good = coverage >= 94 && (cell.share < 0.5 || coverage <= 98.5) &&
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

// Coverage of one kind of federation at one S/M.
struct Count {
  double held = 0;
  double above = 0;  // the truth is above the interval
  double below = 0;
  std::vector<double> lengths;  // over rho^2
};

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Federations of these names, drawn together, each probed at every S/M. `heavy`: no coverage is
// promised.
struct Kind {
  std::vector<std::string> names;
  std::function<std::vector<Federation>(Rng&)> draw;
  bool heavy = false;
};

bool Rows(const Kind& kind, const Asked& asked, uint64_t stream) {
  const std::vector<double> rates = {0.1, 0.3, 0.5};
  std::vector<Count> counts(kind.names.size() * rates.size());
  for (uint64_t seed = asked.seed; seed < asked.seed + asked.seeds; ++seed) {
    Rng rng(seed, stream, 0, Purpose::kTest);
    for (int i = 0; i < asked.repetitions; ++i) {
      const std::vector<Federation> drawn = kind.draw(rng);
      for (size_t k = 0; k < counts.size(); ++k) {
        const Federation& f = drawn[k / rates.size()];
        const Cell cell{v1::UNIFORM, rates[k % rates.size()]};
        const v1::DriftAtSteps drift = Probe(cell, f, rng.Next64(), 1);
        counts[k].above += f.truth > drift.interval_high();
        counts[k].below += f.truth < drift.interval_low();
        counts[k].held += drift.interval_low() <= f.truth && f.truth <= drift.interval_high();
        counts[k].lengths.push_back((drift.interval_high() - drift.interval_low()) / f.truth);
      }
    }
  }
  bool good = true;
  for (size_t k = 0; k < counts.size(); ++k) {
    const double all = asked.repetitions * static_cast<double>(asked.seeds) / 100;
    const bool fine = kind.heavy || counts[k].held / all >= 94;
    good &= fine;
    std::cout << absl::StreamFormat("| %s | %.0f %% | %.1f %% | %.1f %% | %.1f %% | %.2f |%s\n",
                                    kind.names[k / rates.size()], 100 * rates[k % rates.size()],
                                    counts[k].held / all, counts[k].above / all,
                                    counts[k].below / all, Median(counts[k].lengths),
                                    fine ? "" : " <--")
              << std::flush;
  }
  return good;
}

bool OneDirectionTable(const Asked& asked) {
  const auto one = [](std::function<double(Rng&)> size) {
    return [size](Rng& rng) { return std::vector<Federation>{OneDirection(size, rng)}; };
  };
  const auto student = [](Rng& rng) {  // with three degrees of freedom
    const double a = rng.Normal(), b = rng.Normal(), c = rng.Normal();
    return rng.Normal() / std::sqrt((a * a + b * b + c * c) / 3);
  };
  const std::vector<Kind> kinds = {
      {{"conflict data, H = 2", "conflict data, H = 10", "conflict data, H = 50"},
       [](Rng& rng) {
         return ConflictData({2, 10, 50}, rng);
       }},
      {{"normal sizes"}, one([](Rng& rng) { return rng.Normal(); })},
      {{"fourth powers"}, one([](Rng& rng) { return std::pow(rng.Uniform(), 4); })},
      {{"log-normal, σ = 0.5"}, one([](Rng& rng) { return std::exp(0.5 * rng.Normal()); }), true},
      {{"log-normal, σ = 1"}, one([](Rng& rng) { return std::exp(rng.Normal()); }), true},
      {{"log-normal, σ = 1.5"}, one([](Rng& rng) { return std::exp(1.5 * rng.Normal()); }), true},
      {{"Student's t, 3 degrees"}, one(student), true}};
  std::cout
      << "\n| one direction | S/M | coverage | truth above | truth below | median length/ρ² |\n"
         "|---|---|---|---|---|---|\n";
  bool good = true;
  uint64_t stream = 100;
  for (const Kind& kind : kinds) good &= Rows(kind, asked, ++stream);
  return good;
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
  good &= OneDirectionTable(asked);
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
