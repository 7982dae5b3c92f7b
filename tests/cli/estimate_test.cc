#include "cli/estimate.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

namespace leeway {
namespace {

v1::RunConfig Config(const std::string& text) {
  v1::RunConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  return config;
}

std::string Rounds(const std::string& phase, uint64_t parameters = 3) {
  return RoundsText(RoundsOf(Config("phases { " + phase + " }"), parameters));
}

TEST(EstimateTest, RoundsAreKnownOrBounded) {
  EXPECT_EQ(Rounds("optimum { max_rounds: 500 }"), "1 to 501 rounds");
  EXPECT_EQ(Rounds("probe {}"), "1 round");
  EXPECT_EQ(Rounds("train { rounds: 100 probe_at: [0, 50, 100] evaluate_every: 30 }"),
            "107 rounds");  // one for the loss of the final model
  EXPECT_EQ(Rounds("evaluate {}"), "1 round");
  EXPECT_EQ(Rounds("evaluate { percentiles: [50] }"), "1 to 11 rounds");
  EXPECT_EQ(Rounds("fixed_point { steps: [1, 2, 5] max_rounds: 200 who_pays_off: true }"),
            "6 to 603 rounds");
  // Three rounds of counting for each, and a path with its loss.
  EXPECT_EQ(Rounds("fixed_point { steps: [1, 2, 5] max_rounds: 200 after_rounds: 7 }"),
            "39 to 636 rounds");
  // A whole Hessian, or Lanczos iteration by pairs of gradients.
  EXPECT_EQ(Rounds("constants { iterations: 30 }", 256), "4 to 16 rounds");
  EXPECT_EQ(Rounds("constants { iterations: 30 }", 257), "6 to 90 rounds");
  EXPECT_EQ(Rounds("constants { iterations: 30 }", 0), "4 to 90 rounds");
  EXPECT_EQ(Rounds("constants { iterations: 30 dissimilarity_iterations: 5 }", 257),
            "6 to 80 rounds");
  // Of networks, products with Hessians alone.
  EXPECT_EQ(RoundsText(RoundsOf(
                Config("model { mlp { classes: 2 } } phases { constants { iterations: 30 } }"), 9)),
            "3 to 50 rounds");
}

TEST(EstimateTest, BytesFollowTheModelAndTheEncoding) {
  const auto bytes = [](const std::string& text, bool float64) {
    const v1::RunConfig config = Config(text);
    ModelLayout layout;
    layout.tensors = {{"weight", {512}}};
    layout.float64 = float64;
    const RoundBytes found = TrainingBytes(config, config.phases(0).train(), layout);
    return std::pair(found.down, found.up);
  };
  EXPECT_EQ(bytes("phases { train {} }", true), std::pair(uint64_t{4096}, uint64_t{8192}));
  EXPECT_EQ(bytes("phases { train { drift_off: true } }", false),
            std::pair(uint64_t{2048}, uint64_t{2048}));
  EXPECT_EQ(bytes("encoding: INT8_WIRE phases { train { drift_off: true } }", false),
            std::pair(uint64_t{2048}, uint64_t{520}));
}

TEST(EstimateTest, TimeIsThatOfTheGradients) {
  Workload work;
  work.clients = 4;
  work.examples = 50;
  work.parameters = 3;
  work.speed = {0.5, 0.01};
  const auto seconds = [&](const std::string& phase, const std::string& more = "") {
    return RunSeconds(Config(more + " phases { " + phase + " }"), work);
  };
  EXPECT_DOUBLE_EQ(seconds("train { rounds: 10 local { steps: 3 } }"), 10 * 4 * (0.5 + 3 * 0.5));
  EXPECT_DOUBLE_EQ(seconds("train { rounds: 10 local { steps: 3 batch_size: 20 } }"),
                   10 * 4 * (0.5 + 3 * 20 * 0.01));
  EXPECT_DOUBLE_EQ(seconds("train { rounds: 10 local { epochs: 2 batch_size: 20 } }"),
                   10 * 4 * (0.5 + 2 * 50 * 0.01));
  EXPECT_DOUBLE_EQ(seconds("train { rounds: 10 local { steps: 3 } }", "cohort { size: 2 }"),
                   10 * 2 * (0.5 + 3 * 0.5));
  EXPECT_DOUBLE_EQ(seconds("probe { steps: [1, 20] }"), 4 * (0.5 + 20 * 0.5));
  EXPECT_DOUBLE_EQ(seconds("probe { steps: [1, 20] batch_size: 10 repeats: 3 clients: 2 }"),
                   2 * (0.5 + 3 * 20 * 10 * 0.01));
  // A round of 50 local steps is 50 of one.
  EXPECT_DOUBLE_EQ(seconds("fixed_point { steps: [50] who_pays_off: true }"),
                   50 * seconds("fixed_point { steps: 1 who_pays_off: true }"));
  EXPECT_GT(seconds("fixed_point { steps: 1 }"),
            seconds("fixed_point { steps: 1 who_pays_off: true }"));
  EXPECT_DOUBLE_EQ(seconds("fixed_point { steps: [5] who_pays_off: true after_rounds: 40 }"),
                   5 * seconds("fixed_point { steps: [5] who_pays_off: true }"));
  EXPECT_GT(seconds("optimum {}"), 0);
  EXPECT_GT(seconds("constants {}"), 0);
}

TEST(EstimateTest, NumbersAreShort) {
  EXPECT_EQ(SpanText(0.2), "less than 1 s");
  EXPECT_EQ(SpanText(59.7), "about 60 s");
  EXPECT_EQ(SpanText(600), "about 10 min");
  EXPECT_EQ(SpanText(9000), "about 2.5 h");
  EXPECT_EQ(BytesText(264), "264 bytes");
  EXPECT_EQ(BytesText(48'000), "48 kB");
  EXPECT_EQ(BytesText(4'826'360), "4.83 MB");
}

}  // namespace
}  // namespace leeway
