// What a train phase asks for, and in which order.
#include <gtest/gtest.h>

#include "tests/simulated_federation.h"

namespace leeway {
namespace {

constexpr char kTrain[] =
    "phases { train { rounds: 6 local { step_size: 0.05 steps: 3 } server { momentum: 0.5 } "
    "  probe { step_size: 0.05 steps: [1, 4] } probe_at: [0, 3, 4, 6] evaluate_every: 3 } }"
    "phases { probe { point: CURRENT step_size: 0.05 steps: [1, 4] } }";
constexpr char kPlain[] =
    "phases { train { rounds: 6 local { step_size: 0.05 steps: 3 } server { momentum: 0.5 } } }";

std::vector<std::unique_ptr<QuadraticObjective>> Clients() {
  Rng rng(1, 0, 0, Purpose::kTest);
  std::vector<std::unique_ptr<QuadraticObjective>> clients;
  for (int c = 0; c < 4; ++c) {
    clients.push_back(
        std::make_unique<QuadraticObjective>(RandomHessian(3, 0.5, 5, rng), RandomVector(3, rng)));
  }
  return clients;
}

std::string Order(const std::vector<v1::RoundRecord>& records) {
  std::string out;
  for (const v1::RoundRecord& record : records) {
    if (record.phase() != 0) break;
    out += record.kind() == v1::PROBE_ROUND        ? 'p'
           : record.kind() == v1::EVALUATE_ROUND   ? 'e'
           : record.kind() == v1::FINAL_LOSS_ROUND ? 'l'
                                                   : 't';
    out += std::to_string(record.round_in_phase()) + ' ';
  }
  return out;
}

TEST(TrainPhaseTest, MeasuresComeAfterTheRoundsAskedFor) {
  SimulatedFederation f(Clients(), kTrain);
  f.Run();
  EXPECT_EQ(Order(f.records()), "p0 t1 t2 t3 p3 e3 t4 p4 t5 t6 p6 e6 ");
}

TEST(TrainPhaseTest, EveryRoundCanBeEvaluatedAndNoneProbed) {
  SimulatedFederation f(Clients(),
                        "phases { train { rounds: 3 local { step_size: 0.05 steps: 3 } "
                        "evaluate_every: 1 } }");
  f.Run();
  EXPECT_EQ(Order(f.records()), "t1 e1 t2 e2 t3 e3 l3 ");
}

// The loss of the model that training ends with is measured at the end of the run, where no
// other round changes its number.
TEST(TrainPhaseTest, TheRunEndsWithTheLossOfItsModel) {
  SimulatedFederation f(Clients(), kPlain);
  f.Run();
  const v1::RoundRecord& last = f.records().back();
  EXPECT_EQ(last.kind(), v1::FINAL_LOSS_ROUND);
  EXPECT_EQ(last.base_sha256(), f.script().current()->sha256);
  EXPECT_EQ(last.round_in_phase(), 6u);
  // A training that starts there begins with the same loss.
  SimulatedFederation longer(
      Clients(),
      std::string(kPlain) +
          "phases { train { start: CURRENT rounds: 1 local { step_size: 0.05 steps: 3 } } }");
  longer.Run();
  const v1::RoundRecord& next = longer.records()[6];
  EXPECT_EQ(next.base_sha256(), last.base_sha256());
  EXPECT_EQ(next.loss(), last.loss());
  EXPECT_EQ(next.kind(), v1::TRAIN_ROUND);
  // A probe at the end measures it anyway.
  SimulatedFederation probed(Clients(), kTrain);
  probed.Run();
  EXPECT_EQ(probed.records().back().kind(), v1::PROBE_ROUND);
  EXPECT_EQ(probed.records().back().loss(), last.loss());
}

TEST(TrainPhaseTest, MeasuringLeavesNoTraceInTheModel) {
  SimulatedFederation measured(Clients(), kTrain);
  SimulatedFederation plain(Clients(), kPlain);
  measured.Run();
  plain.Run();
  EXPECT_EQ(measured.script().current()->sha256, plain.script().current()->sha256);
}

TEST(TrainPhaseTest, AProbeSeesTheModelOfItsRound) {
  SimulatedFederation f(Clients(), kTrain);
  f.Run();
  std::string trained = f.records()[0].base_sha256();
  for (const v1::RoundRecord& record : f.records()) {
    EXPECT_EQ(record.base_sha256(), trained);
    trained = record.model_sha256();
    EXPECT_EQ(record.drift_size(), record.kind() == v1::PROBE_ROUND      ? 2
                                   : record.kind() == v1::EVALUATE_ROUND ? 0
                                                                         : 1);
  }
  // The probe after the last round is the probe of a phase that follows.
  const v1::RoundRecord& within = f.records()[10];
  ASSERT_EQ(within.kind(), v1::PROBE_ROUND);
  EXPECT_EQ(within.drift(1).average_drift_squared(), f.last().drift(1).average_drift_squared());
  EXPECT_EQ(within.drift(1).drift_bound(), f.last().drift(1).drift_bound());
}

// A server killed before any round goes on with the same rounds and model.
TEST(TrainPhaseTest, ResumesBetweenAnyTwoRounds) {
  SimulatedFederation whole(Clients(), kTrain);
  whole.Run();
  for (size_t killed = 1; killed < whole.records().size(); ++killed) {
    SimulatedFederation f(Clients(), kTrain);
    for (size_t i = 0; i < killed; ++i) f.Step();
    f.Restart();
    f.Run();
    ASSERT_EQ(f.records().size(), whole.records().size()) << killed;
    EXPECT_EQ(Order(f.records()), Order(whole.records())) << killed;
    EXPECT_EQ(f.script().current()->sha256, whole.script().current()->sha256) << killed;
  }
}

}  // namespace
}  // namespace leeway
