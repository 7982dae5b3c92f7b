// Who pays for local steps, and what they reach after some rounds, over the real script, local
// updates and tally; and that asking for it changes nothing else.
#include "records/who_pays.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/simulated_federation.h"

namespace leeway {
namespace {

using Clients = std::vector<std::unique_ptr<QuadraticObjective>>;
constexpr Eigen::Index kDimension = 4;

Clients RandomClients(size_t n, uint64_t seed) {
  Rng rng(seed, 0, 0, Purpose::kTest);
  Clients clients;
  for (size_t c = 0; c < n; ++c) {
    Eigen::MatrixXd a = RandomHessian(kDimension, 0.5, 8, rng);
    clients.push_back(
        std::make_unique<QuadraticObjective>(std::move(a), RandomVector(kDimension, rng)));
  }
  return clients;
}

double LossOf(const QuadraticObjective& client, const Eigen::VectorXd& w) {
  const Eigen::VectorXd d = w - client.minimiser();
  return 0.5 * d.dot(client.hessian() * d);
}

// A client's model after `steps` steps of gradient descent.
Eigen::VectorXd Moved(const QuadraticObjective& client, Eigen::VectorXd w, double eta, int steps) {
  for (int h = 0; h < steps; ++h) w -= eta * (client.hessian() * (w - client.minimiser()));
  return w;
}

Eigen::VectorXd AfterRounds(const Clients& clients, Eigen::VectorXd w, double eta, int steps,
                            int rounds) {
  for (int r = 0; r < rounds; ++r) {
    Eigen::VectorXd mean = Eigen::VectorXd::Zero(kDimension);
    for (const auto& client : clients) mean += Moved(*client, w, eta, steps);
    w = mean / static_cast<double>(clients.size());
  }
  return w;
}

// Deciles of how much more clients lose at `local` than at `other`.
std::vector<double> Deciles(const Clients& clients, const Eigen::VectorXd& local,
                            const Eigen::VectorXd& other) {
  std::vector<double> differences;
  for (const auto& client : clients) {
    differences.push_back(LossOf(*client, local) - LossOf(*client, other));
  }
  std::sort(differences.begin(), differences.end());
  std::vector<double> out;
  for (size_t k = 1; k <= 9; ++k) out.push_back(differences[(k * differences.size() + 9) / 10 - 1]);
  return out;
}

void ExpectDeciles(const v1::WhoPays& who, const std::vector<double>& expected) {
  ASSERT_EQ(who.loss_deciles_size(), 9);
  const double range = expected[8] - expected[0];
  for (int k = 0; k < 9; ++k) {
    EXPECT_NEAR(who.loss_deciles(k), expected[static_cast<size_t>(k)], 0.01 * range) << k;
  }
}

std::vector<v1::RoundRecord> WithWhoPays(const SimulatedFederation& f) {
  std::vector<v1::RoundRecord> found;
  for (const v1::RoundRecord& record : f.records()) {
    if (record.has_who_pays()) found.push_back(record);
  }
  return found;
}

TEST(WhoPaysTest, FixedPointsAreComparedWithTheOptimum) {
  SimulatedFederation f(RandomClients(23, 1),
                        "phases { optimum { tolerance: 1e-11 } }"
                        "phases { fixed_point { step_size: 0.1 steps: [1, 8] after_rounds: 7 "
                        "tolerance: 1e-11 } }");
  f.Run();
  const std::vector<v1::RoundRecord> found = WithWhoPays(f);
  ASSERT_EQ(found.size(), 2u);
  for (const v1::RoundRecord& record : found) {
    const auto h = static_cast<int>(record.who_pays().h());
    EXPECT_EQ(record.who_pays().clients(), 23u);
    EXPECT_EQ(record.who_pays().test_clients(), 0u);
    if (h == 1) continue;  // at w* itself all differences are rounding
    const Eigen::VectorXd rest = AfterRounds(f.clients(), f.optimum(), 0.1, h, 2000);
    ExpectDeciles(record.who_pays(), Deciles(f.clients(), rest, f.optimum()));
    uint32_t losers = 0;
    for (const auto& client : f.clients()) {
      losers += LossOf(*client, rest) > LossOf(*client, f.optimum());
    }
    EXPECT_EQ(record.who_pays().losers(), losers);
  }
  size_t results = 0;
  for (const v1::RoundRecord& record : f.records()) {
    if (!record.has_fixed_point()) continue;
    const v1::FixedPointResult& result = record.fixed_point();
    const Eigen::VectorXd w = AfterRounds(f.clients(), Eigen::VectorXd::Zero(kDimension), 0.1,
                                          static_cast<int>(result.h()), 7);
    double loss = 0;
    for (const auto& client : f.clients()) loss += LossOf(*client, w) / 23;
    EXPECT_EQ(result.after_rounds(), 7u);
    EXPECT_NEAR(result.loss_after_rounds(), loss, 1e-9 * loss);
    ++results;
  }
  EXPECT_EQ(results, 2u);
}

TEST(WhoPaysTest, ReleaseTestsCompareTheEndsOfTheirBranches) {
  SimulatedFederation f(
      RandomClients(15, 2),
      "phases { release { point: INITIAL step_size: 0.1 steps: [3, 8] rounds: 4 } }");
  f.Run();
  const std::vector<v1::RoundRecord> found = WithWhoPays(f);
  ASSERT_EQ(found.size(), 2u);
  const Eigen::VectorXd start = Eigen::VectorXd::Zero(kDimension);
  for (const v1::RoundRecord& record : found) {
    const auto h = static_cast<int>(record.who_pays().h());
    ExpectDeciles(record.who_pays(),
                  Deciles(f.clients(), AfterRounds(f.clients(), start, 0.1, h, 4),
                          AfterRounds(f.clients(), start, 0.1, 1, 4 * h)));
  }
  uint32_t losers = 0;
  for (const v1::RoundRecord& record : f.records()) {
    if (record.has_release()) losers = record.release().losers();
  }
  EXPECT_EQ(found.back().who_pays().losers(), losers);
}

TEST(WhoPaysTest, ChangesNothingElse) {
  const auto config = [](const std::string& off, const std::string& after) {
    return "cohort { size: 5 } phases { constants {} } phases { optimum {} }"
           "phases { fixed_point { auto_step_size: true steps: [2, 9] " +
           off + after +
           " } }"
           "phases { release { step_size: 0.05 steps: [2, 3] rounds: 2 clients: 4 " +
           off +
           " } }"
           "phases { probe { point: OPTIMUM step_size: 0.05 steps: [3] clients: 8 } }"
           "phases { train { rounds: 6 local { step_size: 0.05 steps: 4 } probe_at: [2, 4] "
           "probe { step_size: 0.1 steps: 2 clients: 6 } release_at: [2, 5] "
           "release { step_size: 0.05 steps: [2] rounds: 2 clients: 6 " +
           off + " } } }";
  };
  SimulatedFederation with(RandomClients(12, 3), config("", "after_rounds: 3"));
  SimulatedFederation without(RandomClients(12, 3), config("who_pays_off: true", ""));
  with.Run();
  without.Run();
  EXPECT_EQ(with.current(), without.current());
  EXPECT_EQ(with.optimum(), without.optimum());
  uint64_t aside = 0;
  size_t next = 0;  // among the rounds without
  for (size_t i = 0; i < with.records().size(); ++i) {
    v1::RoundRecord one = with.records()[i];
    if (IsAside(one)) {
      ++aside;
      continue;
    }
    ASSERT_LT(next, without.records().size());
    v1::RoundRecord other = without.records()[next];
    EXPECT_EQ(with.cohorts()[i], without.cohorts()[next]) << one.DebugString();
    for (v1::RoundRecord* record : {&one, &other}) {  // numbers differ, and nothing else does
      record->clear_round();
      record->clear_round_in_phase();
      if (record->has_fixed_point()) {
        record->mutable_fixed_point()->clear_after_rounds();
        record->mutable_fixed_point()->clear_loss_after_rounds();
      }
    }
    EXPECT_EQ(one.SerializeAsString(), other.SerializeAsString()) << one.DebugString();
    ++next;
  }
  EXPECT_EQ(next, without.records().size());
  // Two paths of 4 rounds; counts for two fixed points and for 2 + 1 + 1 release tests.
  EXPECT_EQ(aside, 2 * 4 + 6 * kWhoPaysRounds);
}

TEST(WhoPaysTest, AServerThatIsKilledCountsOn) {
  const std::string config =
      "cohort { size: 3 } phases { constants {} } phases { optimum {} }"
      "phases { fixed_point { auto_step_size: true steps: [2, 9] after_rounds: 3 } }"
      "phases { release { step_size: 0.05 steps: [2, 3] rounds: 2 clients: 4 } }"
      "phases { train { rounds: 4 local { step_size: 0.05 steps: 4 } release_at: [2] "
      "release { step_size: 0.05 steps: [2] rounds: 2 clients: 4 } } }";
  SimulatedFederation whole(RandomClients(6, 4), config);
  whole.Run();
  SimulatedFederation broken(RandomClients(6, 4), config);
  do {
    broken.Restart();
  } while (broken.Step());
  ASSERT_EQ(whole.records().size(), broken.records().size());
  for (size_t i = 0; i < whole.records().size(); ++i) {
    EXPECT_EQ(whole.records()[i].SerializeAsString(), broken.records()[i].SerializeAsString());
    EXPECT_EQ(whole.cohorts()[i], broken.cohorts()[i]);
  }
}

TEST(WhoPaysTest, TheSentenceSaysWhoLoses) {
  v1::WhoPays who;
  who.set_h(10);
  who.set_clients(100);
  who.set_losers(60);
  for (const double d : {-0.2, -0.1, 0.0, 0.01, 0.02, 0.03, 0.05, 0.1, 0.5})
    who.add_loss_deciles(d);
  EXPECT_EQ(WhoPaysText(who),
            "Who pays at H = 10: half of the clients lose less than 0.02, the worst tenth more "
            "than 0.5; 60 of 100 lose.");
  v1::WhoPays other = who;
  other.set_loss_deciles(4, -0.03);
  EXPECT_EQ(WhoPaysText(other),
            "Who pays at H = 10: half of the clients gain more than 0.03, the worst tenth lose "
            "more than 0.5; 60 of 100 lose.");
  other.set_loss_deciles(8, 0);
  EXPECT_EQ(WhoPaysText(other),
            "Who pays at H = 10: nine of ten clients lose nothing (60 of 100 lose).");
  who.set_test_clients(80);
  who.set_accuracy_losers(12);
  for (const double d : {-0.031, 0.0, 0.0, 0.0, 0.0, 0.0, 0.01, 0.02, 0.03}) {
    who.add_accuracy_deciles(d);
  }
  EXPECT_EQ(WhoPaysText(who),
            "Who pays at H = 10: half of the clients lose less than 0.02, the worst tenth more "
            "than 0.5; 60 of 100 lose; 12 of 80 lose accuracy, the worst tenth more than 3.1 "
            "points.");
}

}  // namespace
}  // namespace leeway
