// The paper's closed forms, over the real script, local updates and tally.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/simulated_federation.h"

namespace leeway {
namespace {

using Clients = std::vector<std::unique_ptr<QuadraticObjective>>;
constexpr Eigen::Index kDimension = 6;
constexpr double kEta = 0.05;

Clients RandomClients(size_t n, uint64_t seed) {
  Rng rng(seed, 0, 0, Purpose::kTest);
  Clients clients;
  for (size_t c = 0; c < n; ++c) {
    Eigen::MatrixXd a = RandomHessian(kDimension, 0.5, 15, rng);
    clients.push_back(
        std::make_unique<QuadraticObjective>(std::move(a), RandomVector(kDimension, rng)));
  }
  return clients;
}

Eigen::VectorXd Minimiser(const Clients& clients) {
  Eigen::MatrixXd a = Eigen::MatrixXd::Zero(kDimension, kDimension);
  Eigen::VectorXd b = Eigen::VectorXd::Zero(kDimension);
  for (const auto& c : clients) {
    a += c->hessian();
    b += c->hessian() * c->minimiser();
  }
  return a.ldlt().solve(b);
}

// P_c of Lemma 2.
Eigen::MatrixXd P(const Eigen::MatrixXd& a, int steps) {
  const Eigen::MatrixXd identity = Eigen::MatrixXd::Identity(kDimension, kDimension);
  Eigen::MatrixXd sum = Eigen::MatrixXd::Zero(kDimension, kDimension);
  for (int h = 0; h < steps; ++h) sum += identity - Power(identity - kEta * a, h);
  return sum / steps;
}

const char* const kProbe =
    "phases { optimum { tolerance: 1e-11 } }"
    "phases { probe { point: OPTIMUM step_size: 0.05 steps: [1, 2, 5, 20, 100] } }";

TEST(ClosedFormsTest, OptimumIsTheMinimiser) {
  SimulatedFederation f(RandomClients(9, 1), kProbe);
  f.Run();
  EXPECT_LT((f.optimum() - Minimiser(f.clients())).norm(), 1e-10);
}

TEST(ClosedFormsTest, DriftAtOptimumIsLemmaTwo) {
  SimulatedFederation f(RandomClients(9, 2), kProbe);
  f.Run();
  const v1::RoundRecord& probe = f.last();
  ASSERT_EQ(probe.kind(), v1::PROBE_ROUND);
  const Eigen::VectorXd w = f.optimum();
  for (const v1::DriftAtSteps& drift : probe.drift()) {
    Eigen::VectorXd mean = Eigen::VectorXd::Zero(kDimension);
    double bound = 0;
    for (const auto& c : f.clients()) {
      const Eigen::VectorXd g = c->hessian() * (w - c->minimiser());
      const Eigen::VectorXd b = P(c->hessian(), static_cast<int>(drift.h())) * g;
      mean += b / 9;
      bound += b.squaredNorm() / 9;
    }
    EXPECT_NEAR(drift.average_drift_squared(), mean.squaredNorm(), 1e-9 * mean.squaredNorm());
    EXPECT_NEAR(drift.drift_bound(), bound, 1e-9 * bound);
    EXPECT_EQ(drift.unbiased_drift_squared(), drift.average_drift_squared());
  }
  EXPECT_EQ(probe.drift(0).average_drift_squared(), 0);  // H = 1 is a plain gradient step
}

TEST(ClosedFormsTest, TheoremOneHoldsForFinitelyManyClients) {
  // w' - w* = E[(I - eta A)^H] (w - w*) - eta H G(w*), with alpha = 1.
  for (const int steps : {1, 3, 10}) {
    SimulatedFederation f(
        RandomClients(5, 3),
        "phases { train { rounds: 30 loss_off: true local { step_size: 0.05 steps: " +
            std::to_string(steps) + " } } }");
    const Eigen::VectorXd optimum = Minimiser(f.clients());
    const Eigen::MatrixXd identity = Eigen::MatrixXd::Identity(kDimension, kDimension);
    Eigen::MatrixXd contraction = Eigen::MatrixXd::Zero(kDimension, kDimension);
    Eigen::VectorXd pseudo_gradient = Eigen::VectorXd::Zero(kDimension);
    for (const auto& c : f.clients()) {
      const Eigen::MatrixXd power = Power(identity - kEta * c->hessian(), steps);
      contraction += power / 5;
      pseudo_gradient += (identity - power) * (optimum - c->minimiser()) / (5 * kEta * steps);
    }
    Eigen::VectorXd error = -optimum;
    while (f.Step()) {
      error = contraction * error - kEta * steps * pseudo_gradient;
      ASSERT_LT((f.current() - optimum - error).norm(), 1e-11 * optimum.norm()) << steps;
    }
  }
}

TEST(ClosedFormsTest, EqualHessiansDoNotDrift) {
  Rng rng(4, 0, 0, Purpose::kTest);
  const Eigen::MatrixXd a = RandomHessian(kDimension, 0.5, 15, rng);
  Clients clients;
  for (int c = 0; c < 8; ++c) {
    clients.push_back(std::make_unique<QuadraticObjective>(a, 3 * RandomVector(kDimension, rng)));
  }
  SimulatedFederation f(std::move(clients), kProbe);
  f.Run();
  EXPECT_GT(f.last().dissimilarity(), 100);
  for (const v1::DriftAtSteps& drift : f.last().drift()) {
    EXPECT_LT(drift.average_drift_squared(), 1e-20);
    EXPECT_TRUE(drift.h() == 1 || drift.drift_bound() > 1);
  }
}

TEST(ClosedFormsTest, IdenticalClientsHaveNothingToDisagreeAbout) {
  Rng rng(5, 0, 0, Purpose::kTest);
  const Eigen::MatrixXd a = RandomHessian(kDimension, 0.5, 15, rng);
  const Eigen::VectorXd m = RandomVector(kDimension, rng);
  Clients clients;
  for (int c = 0; c < 8; ++c) clients.push_back(std::make_unique<QuadraticObjective>(a, m));
  SimulatedFederation f(std::move(clients), kProbe);
  f.Run();
  EXPECT_LT(f.last().dissimilarity(), 1e-20);
  for (const v1::DriftAtSteps& drift : f.last().drift()) {
    EXPECT_LT(drift.average_drift_squared(), 1e-20);
    EXPECT_LT(drift.drift_bound(), 1e-20);
  }
}

TEST(ClosedFormsTest, ConstantsAreThoseOfTheHessians) {
  SimulatedFederation f(RandomClients(7, 8), "phases { constants {} }");
  f.Run();
  Eigen::MatrixXd mean = Eigen::MatrixXd::Zero(kDimension, kDimension);
  for (const auto& c : f.clients()) mean += c->hessian() / 7;
  const Eigen::VectorXd global = mean.selfadjointView<Eigen::Lower>().eigenvalues();
  double largest = 0;
  double smallest = 1e9;
  double distance = 0;
  Eigen::MatrixXd squares = Eigen::MatrixXd::Zero(kDimension, kDimension);
  for (const auto& c : f.clients()) {
    squares += (c->hessian() - mean) * (c->hessian() - mean) / 7;
    const Eigen::VectorXd own = c->hessian().selfadjointView<Eigen::Lower>().eigenvalues();
    largest = std::max(largest, own.maxCoeff());
    smallest = std::min(smallest, own.minCoeff());
    const Eigen::MatrixXd difference = c->hessian() - mean;
    distance = std::max(
        distance, difference.selfadjointView<Eigen::Lower>().eigenvalues().cwiseAbs().maxCoeff());
  }
  const v1::ConstantsResult& found = f.last().constants();
  EXPECT_TRUE(found.exact());
  EXPECT_NEAR(found.smoothness(), global.maxCoeff(), 1e-9 * global.maxCoeff());
  EXPECT_NEAR(found.convexity(), global.minCoeff(), 1e-9 * global.maxCoeff());
  EXPECT_NEAR(found.largest_client_smoothness(), largest, 1e-6 * largest);
  EXPECT_GE(found.largest_client_smoothness(), largest * (1 - 1e-12));
  EXPECT_NEAR(found.smallest_client_convexity(), smallest, 1e-6 * smallest);
  EXPECT_LE(found.smallest_client_convexity(), smallest * (1 + 1e-12));
  EXPECT_NEAR(found.hessian_dissimilarity(), distance, 1e-6 * distance);
  const double spread = squares.selfadjointView<Eigen::Lower>().eigenvalues().maxCoeff();
  EXPECT_NEAR(found.mean_hessian_dissimilarity(), std::sqrt(spread), 1e-9 * std::sqrt(spread));
}

// With more than 256 parameters no Hessian is exchanged: the same by products, and from a saved
// state as well.
TEST(ClosedFormsTest, HessiansOfLargeModelsAreComparedByProducts) {
  constexpr Eigen::Index kLarge = 260;
  Rng rng(11, 0, 0, Purpose::kTest);
  Eigen::MatrixXd mean = Eigen::MatrixXd::Zero(kLarge, kLarge);
  std::vector<Eigen::MatrixXd> hessians;
  Clients clients;
  for (int c = 0; c < 4; ++c) {
    hessians.push_back(RandomHessian(kLarge, 0.5, 15, rng));
    mean += hessians.back() / 4;
    clients.push_back(
        std::make_unique<QuadraticObjective>(hessians.back(), RandomVector(kLarge, rng)));
  }
  Eigen::MatrixXd squares = Eigen::MatrixXd::Zero(kLarge, kLarge);
  for (const Eigen::MatrixXd& own : hessians) squares += (own - mean) * (own - mean) / 4;
  SimulatedFederation f(std::move(clients),
                        "phases { constants { dissimilarity_iterations: 60 } }");
  while (f.Step()) f.Restart();
  const v1::ConstantsResult& found = f.last().constants();
  const double spread = squares.selfadjointView<Eigen::Lower>().eigenvalues().maxCoeff();
  EXPECT_FALSE(found.exact());
  EXPECT_TRUE(std::isnan(found.hessian_dissimilarity()));
  EXPECT_NEAR(found.mean_hessian_dissimilarity(), std::sqrt(spread), 1e-6 * std::sqrt(spread));
}

TEST(ClosedFormsTest, FedAvgRestsWhereTheClosedFormSays) {
  // w_H - w* = -A~^-1 G(w*), A~ = E[I - (I - eta A)^H] / (eta H).
  SimulatedFederation f(RandomClients(5, 9),
                        "phases { optimum { tolerance: 1e-12 } }"
                        "phases { fixed_point { step_size: 0.05 steps: [1, 5, 40] } }");
  f.Run();
  const Eigen::VectorXd optimum = Minimiser(f.clients());
  const Eigen::MatrixXd identity = Eigen::MatrixXd::Identity(kDimension, kDimension);
  const auto loss = [&f](const Eigen::VectorXd& w) {
    double total = 0;
    for (const auto& c : f.clients()) {
      const Eigen::VectorXd e = w - c->minimiser();
      total += 0.5 * e.dot(c->hessian() * e) / 5;
    }
    return total;
  };
  int found = 0;
  for (const v1::RoundRecord& record : f.records()) {
    if (!record.has_fixed_point()) continue;
    const v1::FixedPointResult& result = record.fixed_point();
    const int steps = static_cast<int>(result.h());
    Eigen::MatrixXd a = Eigen::MatrixXd::Zero(kDimension, kDimension);
    Eigen::VectorXd g = Eigen::VectorXd::Zero(kDimension);
    for (const auto& c : f.clients()) {
      const Eigen::MatrixXd own =
          (identity - Power(identity - kEta * c->hessian(), steps)) / (kEta * steps);
      a += own / 5;
      g += own * (optimum - c->minimiser()) / 5;
    }
    const Eigen::VectorXd offset = -a.partialPivLu().solve(g);
    EXPECT_NEAR(result.distance(), offset.norm(), 1e-7 * optimum.norm()) << steps;
    const double gap = loss(optimum + offset) - loss(optimum);
    EXPECT_NEAR(result.loss_gap(), gap, 1e-6 * gap + 1e-13) << steps;
    EXPECT_LE(result.pseudo_gradient_norm(), 1e-9);
    EXPECT_LE(result.rounds(), 30u);
    ++found;
  }
  EXPECT_EQ(found, 3);
}

// Without a tolerance a search ends when what it leaves open is far below what the
// verdict asks about; with one it goes on.
TEST(ClosedFormsTest, SearchesWithoutAToleranceEndWhenTheVerdictKnowsEnough) {
  const auto run = [](const std::string& tolerance) {
    auto f = std::make_unique<SimulatedFederation>(
        RandomClients(12, 3), "phases { constants {} } phases { optimum { " + tolerance +
                                  " } } phases { fixed_point { step_size: 0.05 steps: [5, 40] " +
                                  tolerance + " } }");
    f->Run();
    return f;
  };
  const auto rounds = [](const SimulatedFederation& f, v1::RoundKind kind) {
    return std::count_if(f.records().begin(), f.records().end(),
                         [kind](const v1::RoundRecord& record) { return record.kind() == kind; });
  };
  const auto exact = run("tolerance: 1e-11");
  const auto enough = run("");
  EXPECT_LT(rounds(*enough, v1::OPTIMUM_ROUND), rounds(*exact, v1::OPTIMUM_ROUND));
  EXPECT_LT(rounds(*enough, v1::FIXED_POINT_ROUND), rounds(*exact, v1::FIXED_POINT_ROUND));
  const auto loss = [&](const Eigen::VectorXd& w) {
    double total = 0;
    for (const auto& c : exact->clients()) {
      total += 0.5 * (w - c->minimiser()).dot(c->hessian() * (w - c->minimiser())) / 12;
    }
    return total;
  };
  std::vector<v1::FixedPointResult> results[2];
  for (const auto* f : {exact.get(), enough.get()}) {
    for (const v1::RoundRecord& record : f->records()) {
      if (record.has_fixed_point()) results[f == enough.get()].push_back(record.fixed_point());
    }
  }
  ASSERT_EQ(results[0].size(), 2u);
  ASSERT_EQ(results[1].size(), 2u);
  const auto yardstick =
      std::find_if(exact->records().begin(), exact->records().end(),
                   [](const v1::RoundRecord& record) { return record.has_yardstick(); });
  ASSERT_NE(yardstick, exact->records().end());
  const double harmless = 0.01 * (yardstick->yardstick().constant_loss() - loss(exact->optimum()));
  EXPECT_LE(loss(enough->optimum()) - loss(exact->optimum()),
            2.5e-7 * results[0][0].loss_standard_error());
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(results[1][i].loss_gap(), results[0][i].loss_gap(),
                std::min(1.1e-2 * harmless, 0.11 * results[0][i].loss_gap()));
  }
}

TEST(ClosedFormsTest, AutoStepSizeIsTheTheorys) {
  SimulatedFederation f(
      RandomClients(5, 10),
      "phases { constants {} }"
      "phases { train { rounds: 1 loss_off: true local { auto_step_size: true steps: 4 } } }");
  f.Run();
  const size_t n = f.records().size();
  const v1::ConstantsResult& c = f.records()[n - 2].constants();
  EXPECT_DOUBLE_EQ(f.records()[n - 1].step_size(), 1 / c.largest_client_smoothness());
}

TEST(ClosedFormsTest, AutoStepSizeIsOneForARunWithAVerdict) {
  SimulatedFederation f(RandomClients(5, 10),
                        "phases { constants {} } phases { optimum {} }"
                        "phases { probe { point: OPTIMUM auto_step_size: true steps: [1, 4000] } }"
                        "phases { fixed_point { auto_step_size: true steps: [2] } }"
                        "phases { train { rounds: 1 local { step_size: 0.01 steps: 9000 } } }"
                        "phases { train { rounds: 1 local { auto_step_size: true steps: 4 } } }");
  f.Run();
  double convexity = 0;
  int automatic = 0;
  for (const v1::RoundRecord& record : f.records()) {
    if (record.has_constants()) convexity = record.constants().smallest_client_convexity();
    const bool moves = record.kind() == v1::PROBE_ROUND || record.kind() == v1::TRAIN_ROUND ||
                       record.kind() == v1::FIXED_POINT_ROUND;
    if (!moves || record.local_steps() == 0 || record.step_size() == 0.01) continue;
    EXPECT_DOUBLE_EQ(record.step_size(), 1 / (4000 * convexity));
    ++automatic;
  }
  EXPECT_GE(automatic, 3);
}

TEST(ClosedFormsTest, TrainingRoundsRecordTheirOwnDrift) {
  SimulatedFederation f(RandomClients(4, 6),
                        "phases { train { rounds: 6 drift_every: 2 "
                        "local { step_size: 0.05 steps: 7 } } }");
  while (true) {
    const Eigen::VectorXd w = f.current();
    if (!f.Step()) break;
    const bool measured = f.last().round_in_phase() % 2 == 1;
    ASSERT_EQ(f.last().drift_size(), measured ? 1 : 0);
    if (!measured) continue;
    Eigen::VectorXd mean = Eigen::VectorXd::Zero(kDimension);
    for (const auto& c : f.clients()) {
      mean += P(c->hessian(), 7) * (c->hessian() * (w - c->minimiser())) / 4;
    }
    EXPECT_EQ(f.last().drift(0).h(), 7u);
    EXPECT_NEAR(f.last().drift(0).average_drift_squared(), mean.squaredNorm(),
                1e-9 * mean.squaredNorm());
  }
}

TEST(ClosedFormsTest, AResumedScriptGoesOnWithTheSameBits) {
  const std::string config =
      "cohort { size: 3 } phases { constants {} } phases { optimum {} }"
      "phases { fixed_point { auto_step_size: true steps: [2, 9] } }"
      "phases { probe { point: OPTIMUM step_size: 0.05 steps: [3] clients: 4 } }"
      "phases { train { rounds: 8 local { step_size: 0.05 steps: 4 } server { momentum: 0.7 } } }";
  SimulatedFederation whole(RandomClients(5, 7), config);
  std::map<std::string, std::string> files;
  while (whole.Step()) {
    for (const ModelPtr& m :
         {whole.script().initial(), whole.script().current(), whole.script().optimum()}) {
      if (m) files[m->sha256] = std::string(m->file.view());
    }
  }
  SimulatedFederation broken(RandomClients(5, 7), config);
  v1::RunConfig run =
      *ParseConfig("model { linear_regression { intercept: false } } " + config, "test");
  v1::DataSchema schema;
  schema.add_feature_shape(kDimension);
  do {  // a new process before every round
    auto resumed = Script::Resume(
        run, *LayoutOf(run.model(), schema), 5, broken.script().Save(),
        [&files](const std::string& sha) -> absl::StatusOr<std::string> { return files.at(sha); });
    ASSERT_TRUE(resumed.ok()) << resumed.status();
    broken.script() = *std::move(resumed);
  } while (broken.Step());
  ASSERT_EQ(whole.records().size(), broken.records().size());
  for (size_t i = 0; i < whole.records().size(); ++i) {
    EXPECT_EQ(whole.records()[i].SerializeAsString(), broken.records()[i].SerializeAsString());
  }
}

}  // namespace
}  // namespace leeway
