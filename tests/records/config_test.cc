#include "records/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace leeway {
namespace {

using ::testing::HasSubstr;

const char kGood[] =
    "model { linear_regression {} } "
    "phases { train { rounds: 3 local { step_size: 0.1 steps: 2 } } }";

TEST(ConfigTest, FillsInDefaults) {
  const auto config = ParseConfig(kGood, "c");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->max_update(), 0);  // found by itself
  EXPECT_EQ(config->cohort().deadline_seconds(), 600);
  EXPECT_EQ(config->phases(0).train().server().rate(), 1);
  EXPECT_EQ(config->phases(0).train().start(), v1::Probe::INITIAL);
}

struct Bad {
  const char* text;
  const char* message;
};

class BadConfigTest : public ::testing::TestWithParam<Bad> {};

TEST_P(BadConfigTest, IsRefusedWithItsFieldAndTheRemedy) {
  const auto config = ParseConfig(GetParam().text, "c.textproto");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(config.status().message()), HasSubstr("c.textproto"));
  EXPECT_THAT(std::string(config.status().message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadConfigTest,
    ::testing::Values(
        Bad{"seed: 1\nmodle { }",
            "line 2, column 7: there is no field \"modle\" in RunConfig (did you mean model?); it "
            "has name, seed, model"},
        Bad{"model { linear_regression {} }\nphases {\n  train {\n    rounds: 1 local { step_size: "
            "-1 "
            "steps: 1 } } }",
            "line 4, column 23: phases[0].train.local.step_size is -1"},
        Bad{"model { linear_regression {} }\nphases {\n  train { local { steps: 1 } } }",
            "line 3, column 3: phases[0].train.rounds is 0"},
        Bad{"durability: RELAXED model { linear_regression {} } phases { train { rounds: 1 local { "
            "step_size: 0.1 steps: 2 scaffold {} } } }",
            "phases[0].train.local.scaffold needs durability: FULL"},
        Bad{"encoding: INT8_WIRE model { linear_regression {} } phases { train { rounds: 1 local { "
            "step_size: 0.1 steps: 2 scaffold {} } } }",
            "phases[0].train.local.scaffold needs encoding: EXACT"},
        Bad{"model { file: \"w.safetensors\" } phases { train { rounds: 1 local { step_size: 0.1 "
            "epochs: 2 fednova {} } } }",
            "phases[0].train.local.fednova is for the models that Leeway contains"},
        Bad{"model { linear_regression {} } phases { evaluate { fine_tune { steps: 2 } } }",
            "phases[0].evaluate.fine_tune.step_size is 0"},
        Bad{"model { linear_regression {} } phases { evaluate { fine_tune { step_size: 1 } } }",
            "phases[0].evaluate.fine_tune needs exactly one of steps and epochs"},
        Bad{"model { linear_regression {} } phases { evaluate { fine_tune { step_size: 1 steps: 2 "
            "scaffold {} } } }",
            "phases[0].evaluate.fine_tune is plain"},
        Bad{"model { linear_regression {} } phases { evaluate { fine_tune { step_size: 1 steps: 2 "
            "fedprox {} } } }",
            "phases[0].evaluate.fine_tune.fedprox.mu is 0; give a positive number"},
        Bad{"model { linear_regression {} } phases { evaluate { fine_tune_tensors: 'bias' } }",
            "phases[0].evaluate.fine_tune_tensors is given without fine_tune"},
        Bad{"seed: x", "line 1"}, Bad{"model { linear_regression {} }", "phases is empty"},
        Bad{"phases { optimum {} }", "model is missing"},
        Bad{"model { linear_regression {} } phases { }", "phases[0] is empty"},
        Bad{"model { linear_regression {} } phases { train { rounds: 1 local { step_size: -0.1 "
            "steps: 1 } } }",
            "phases[0].train.local.step_size is -0.1"},
        Bad{"model { linear_regression {} } phases { train { rounds: 1 local { step_size: nan "
            "steps: 1 } } }",
            "step_size is nan"},
        Bad{"model { linear_regression {} } phases { train { rounds: 1 local { step_size: 0.1 "
            "steps: 0 } } }",
            "needs exactly one of steps"},
        Bad{"model { linear_regression {} } phases { train { rounds: 1 local { step_size: 0.1 "
            "steps: 2 epochs: 1 } } }",
            "needs exactly one of steps"},
        Bad{"model { linear_regression {} } phases { train { rounds: 1 loss_off: true local { "
            "step_size: 0.1 auto_steps {} } } }",
            "phases[0].train.loss_off leaves out losses by which auto_steps chooses"},
        Bad{"model { linear_regression {} } phases { constants {} } phases { train { rounds: 1 "
            "local { auto_step_size: true epochs: 1 } } }",
            "phases[1].train.local.auto_step_size chooses at most 1/(mu H)"},
        Bad{"model { linear_regression {} } phases { train { rounds: 1 local { step_size: 0 "
            "steps: 1 } } }",
            "phases[0].train.local.step_size is 0; give a positive number"},
        Bad{"model { linear_regression {} } phases { train { rounds: 1 local { steps: 1 } } }",
            "phases[0].train.local.step_size is left out (automatic), but no constants phase"},
        Bad{"model { linear_regression {} }\nphases { probe { point: INITIAL auto_step_size: true "
            "steps: [1] } }",
            "line 2, column 33: phases[0].probe.auto_step_size is true, but no constants phase"},
        Bad{"model { linear_regression {} } phases { constants {} } phases { train { rounds: 1 "
            "local { auto_step_size: false steps: 1 } } }",
            "phases[1].train.local.auto_step_size is false; give step_size"},
        Bad{"model { linear_regression {} } phases { constants {} } phases { train { rounds: 1 "
            "local { auto_step_size: true step_size: 0.1 steps: 1 } } }",
            "specified along with field \"auto_step_size\""},
        Bad{"model { linear_regression {} } phases { constants {} }\nphases { train { rounds: 1 "
            "local { step_size: auto steps: 1 } } }",
            "line 2, column 47: Expected double, got: auto; to have the step size chosen, write "
            "`auto_step_size: true`"},
        Bad{"model { linear_regression {} } phases { train { local { step_size: 0.1 steps: 2 } } }",
            "rounds is 0"},
        Bad{"model { linear_regression {} } phases { train { rounds: 2 local { step_size: 0.1 "
            "steps: 2 } server { momentum: 1 } } }",
            "momentum is 1"},
        Bad{"model { linear_regression {} } phases { probe { point: OPTIMUM step_size: 0.1 "
            "steps: [1] } }",
            "no optimum phase"},
        Bad{"model { linear_regression {} } phases { probe { point: INITIAL step_size: 0.1 "
            "steps: [2, 1] } }",
            "increasing"},
        Bad{"model { linear_regression {} } phases { probe { point: INITIAL step_size: 0.1 "
            "steps: [0] } }",
            "from 1 up"},
        Bad{"model { linear_regression {} } phases { probe { step_size: 0.1 steps: [1] } }",
            "point is missing"},
        Bad{"model { linear_regression {} } cohort { clients: 5 size: 9 } phases { optimum {} }",
            "cohort.size is 9, but only 5"},
        Bad{"model { linear_regression {} } cohort { clients: 5 size: 4 minimum_reports: 5 } "
            "phases { optimum {} }",
            "cohort.minimum_reports is 5"},
        Bad{"model { linear_regression {} } phases { train { rounds: 9 local { step_size: 0.1 "
            "steps: 2 } probe { step_size: 0.1 steps: [2] } probe_at: [0, 10] } }",
            "phases[0].train.probe_at has 10, but the phase ends after 9 rounds"},
        Bad{"model { linear_regression {} } phases { train { rounds: 9 local { step_size: 0.1 "
            "steps: 2 } probe { step_size: 0.1 steps: [2] } probe_at: [5, 5] } }",
            "probe_at has 5 after 5"},
        Bad{"model { linear_regression {} } phases { train { rounds: 9 local { step_size: 0.1 "
            "steps: 2 } probe_at: [5] } }",
            "phases[0].train.probe_at is given without probe"},
        Bad{"model { linear_regression {} } phases { train { rounds: 9 local { step_size: 0.1 "
            "steps: 2 } probe { step_size: 0.1 steps: [2] } } }",
            "phases[0].train.probe is given without probe_at"},
        Bad{"model { linear_regression {} } phases { train { rounds: 9 local { step_size: 0.1 "
            "steps: 2 } probe { point: INITIAL step_size: 0.1 steps: [2] } probe_at: [5] } }",
            "phases[0].train.probe.point is INITIAL"},
        Bad{"model { linear_regression {} } phases { train { rounds: 9 local { step_size: 0.1 "
            "steps: 2 } probe { step_size: 0.1 steps: [2, 1] } probe_at: [5] } }",
            "phases[0].train.probe.steps has 1 after 2"},
        Bad{"model { linear_regression {} } cohort { clients: 4 } phases { train { rounds: 9 "
            "local { step_size: 0.1 steps: 2 } probe { clients: 5 step_size: 0.1 steps: [1] } "
            "probe_at: [5] } }",
            "phases[0].train.probe.clients is 5, but only 4"},
        Bad{"model { linear_regression {} } phases { train { rounds: 9 local { step_size: 0.1 "
            "steps: 2 } evaluate_every: 10 } }",
            "phases[0].train.evaluate_every is 10"},
        Bad{"model { linear_regression {} } phases { train { rounds: 9 local { step_size: 0.1 "
            "steps: 2 } metrics: 'a' metrics: 'b c' } }",
            "phases[0].train.metrics has the name 'b c'; give 1 to 64 letters"},
        Bad{"model { linear_regression {} } phases { train { rounds: 9 local { step_size: 0.1 "
            "steps: 2 } metrics: ['auc', 'auc'] } }",
            "phases[0].train.metrics has 'auc' twice"},
        Bad{"encoding: INT8",
            "there is no encoding \"INT8\" (did you mean INT8_WIRE?); use one of EXACT, "
            "BFLOAT16_WIRE, INT8_WIRE"},
        Bad{"model { mlp { classes: 2 } } phases { train { rounds: 1 local { steps: 1 } } }",
            "phases[0].train.local.step_size does not go with model.mlp, a network"},
        Bad{"model { mlp { classes: 2 } } phases { train { rounds: 1 start: OPTIMUM local { steps: "
            "1 "
            "step_size: 0.1 } } }",
            "use CURRENT or INITIAL for phases[0].train.start ("},
        Bad{"model { linear_regression {} } max_update: -1 phases { optimum {} }", "max_update"},
        Bad{"model { linear_regression {} } harmless_below: 0.25 phases { optimum {} }",
            "give harmless_lost and conflict_lost instead"}));

TEST(ConfigTest, MissingFileSaysSo) {
  const auto config = LoadConfig("/nowhere/c.textproto");
  EXPECT_EQ(config.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(config.status().message()), HasSubstr("/nowhere/c.textproto"));
}

}  // namespace
}  // namespace leeway
