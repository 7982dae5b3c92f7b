#include "cli/data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/npy.h"

namespace leeway {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SyntheticTest : public testing::Test {
 protected:
  SyntheticTest() {
    std::string pattern = testing::TempDir() + "/data_test.XXXXXX";
    directory_ = mkdtemp(pattern.data());
    options_.out = directory_ + "/data";
    options_.clients = 4;
    options_.samples = 6;
    options_.dimension = 3;
  }
  ~SyntheticTest() override { fs::remove_all(directory_); }

  SyntheticClient Client(const std::string& id) const {
    return MakeSyntheticClient(options_, SyntheticTruth(options_), id);
  }

  // What was written of a client.
  std::vector<double> File(const std::string& id, const std::string& name) const {
    return NpyArray::Map(options_.out + "/" + id + "/" + name + ".npy")->As<double>();
  }

  std::string directory_;
  SyntheticOptions options_;
};

TEST_F(SyntheticTest, WritesOneDirectoryPerClient) {
  const absl::Status status = WriteSynthetic(options_);
  ASSERT_TRUE(status.ok()) << status;
  for (const char* id : {"client_000", "client_001", "client_002", "client_003"}) {
    const std::string client = options_.out + "/" + id;
    auto x = NpyArray::Map(client + "/train_x.npy");
    auto y = NpyArray::Map(client + "/train_y.npy");
    ASSERT_TRUE(x.ok()) << x.status();
    ASSERT_TRUE(y.ok()) << y.status();
    EXPECT_EQ(x->type(), NpyType::kFloat64);
    EXPECT_THAT(x->shape(), ElementsAre(6, 3));
    EXPECT_THAT(y->shape(), ElementsAre(6));
    EXPECT_EQ(x->As<double>(), Client(id).x);
    EXPECT_EQ(y->As<double>(), Client(id).y);
  }
  EXPECT_EQ(NpyArray::Map(options_.out + "/truth.npy")->As<double>(), SyntheticTruth(options_));
  // Nothing else, and no temporary directory beside it.
  EXPECT_EQ(std::distance(fs::directory_iterator(options_.out), {}), 5);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), {}), 1);
}

TEST_F(SyntheticTest, NamesSortLikeNumbers) {
  EXPECT_EQ(SyntheticClientName(7, 100), "client_007");
  EXPECT_EQ(SyntheticClientName(7, 1000), "client_007");
  EXPECT_EQ(SyntheticClientName(7, 1001), "client_0007");
}

TEST_F(SyntheticTest, SeedsDecideEverything) {
  const SyntheticClient a = Client("client_000");
  EXPECT_EQ(Client("client_000").y, a.y);
  EXPECT_NE(Client("client_001").x, a.x);
  const std::vector<double> truth = SyntheticTruth(options_);
  options_.seed = 1;
  EXPECT_NE(Client("client_000").x, a.x);
  EXPECT_NE(SyntheticTruth(options_), truth);
}

TEST_F(SyntheticTest, TheNoiseLevelDoesNotChangeTheInputs) {
  const SyntheticClient loud = Client("client_000");
  options_.noise_sd = 0;
  const SyntheticClient still = Client("client_000");
  EXPECT_EQ(loud.x, still.x);
  const std::vector<double> truth = SyntheticTruth(options_);
  for (size_t i = 0; i < still.y.size(); ++i) {
    double expected = 0;
    for (size_t j = 0; j < truth.size(); ++j) expected += truth[j] * still.x[3 * i + j];
    EXPECT_DOUBLE_EQ(still.y[i], expected);
    EXPECT_NE(loud.y[i], still.y[i]);
  }
}

TEST_F(SyntheticTest, TheDistributionsAreThePapers) {
  options_.samples = 20;
  options_.noise_sd = 0.3;
  const std::vector<double> truth = SyntheticTruth(options_);
  constexpr int kClients = 2000;
  double scale_sum = 0, scale_squared = 0, share_sum = 0, noise_sum = 0, noise_squared = 0;
  for (int c = 0; c < kClients; ++c) {
    const SyntheticClient client = Client(std::to_string(c));
    ASSERT_GE(client.scale, 0);
    ASSERT_LT(client.scale, 5);
    scale_sum += client.scale;
    scale_squared += client.scale * client.scale;
    for (double x : client.x) {
      ASSERT_GE(x, 0);
      ASSERT_LT(x, client.scale);
      share_sum += x / client.scale;
    }
    for (size_t i = 0; i < client.y.size(); ++i) {
      double noise = client.y[i];
      for (size_t j = 0; j < truth.size(); ++j) noise -= truth[j] * client.x[3 * i + j];
      noise_sum += noise;
      noise_squared += noise * noise;
    }
  }
  // Five standard errors each.
  const double samples = 20.0 * kClients;
  EXPECT_NEAR(scale_sum / kClients, 2.5, 5 * 5 / std::sqrt(12.0 * kClients));
  EXPECT_NEAR(scale_squared / kClients, 25.0 / 3, 0.9);
  EXPECT_NEAR(share_sum / (3 * samples), 0.5, 5 / std::sqrt(12 * 3 * samples));
  EXPECT_NEAR(noise_sum / samples, 0, 5 * 0.3 / std::sqrt(samples));
  EXPECT_NEAR(noise_squared / samples, 0.09, 5 * 0.09 * std::sqrt(2 / samples));
}

TEST_F(SyntheticTest, ConflictShiftsWhatAClientWantsByItsScaleAlongTheMeanInput) {
  options_.conflict = 0.4;
  options_.noise_sd = 0;
  ASSERT_TRUE(WriteSynthetic(options_).ok());
  const std::vector<double> truth = SyntheticTruth(options_);
  double mean = 0;
  for (uint32_t c = 0; c < 4; ++c) mean += Client(SyntheticClientName(c, 4)).scale / 4;
  for (uint32_t c = 0; c < 4; ++c) {
    const std::string id = SyntheticClientName(c, 4);
    const double shift = 0.4 * (Client(id).scale - mean) / std::sqrt(3.0);
    const std::vector<double> x = File(id, "train_x");
    const std::vector<double> y = File(id, "train_y");
    EXPECT_EQ(x, Client(id).x);  // the same inputs as without conflict
    for (size_t i = 0; i < y.size(); ++i) {
      double expected = 0;
      for (size_t j = 0; j < 3; ++j) expected += (truth[j] + shift) * x[3 * i + j];
      EXPECT_NEAR(y[i], expected, 1e-12);
    }
  }
}

TEST_F(SyntheticTest, IdenticalClientsHaveTheSameFiles) {
  options_.identical = true;
  ASSERT_TRUE(WriteSynthetic(options_).ok());
  for (uint32_t c = 1; c < 4; ++c) {
    for (const char* name : {"train_x", "train_y"}) {
      EXPECT_EQ(File(SyntheticClientName(c, 4), name), File("client_000", name));
    }
  }
}

TEST_F(SyntheticTest, EqualHessiansMeansEqualInputsAndDifferentOptima) {
  options_.equal_hessians = true;
  options_.noise_sd = 0;
  options_.samples = 3;  // as many as inputs: x determines what generated y
  ASSERT_TRUE(WriteSynthetic(options_).ok());
  for (uint32_t c = 1; c < 4; ++c) {
    const std::string id = SyntheticClientName(c, 4);
    EXPECT_EQ(File(id, "train_x"), File("client_000", "train_x"));
    EXPECT_NE(File(id, "train_y"), File("client_000", "train_y"));
  }
}

TEST_F(SyntheticTest, ConditionSetsTheSpreadOfExpectedHessians) {
  options_.condition = 100;
  options_.samples = 20000;
  const SyntheticClient client = Client("client_000");
  EXPECT_GE(client.scale, 4);
  EXPECT_LE(client.scale, 5);
  std::vector<double> mean(3), square(3);
  for (size_t i = 0; i < client.x.size(); ++i) {
    mean[i % 3] += client.x[i] / options_.samples;
    square[i % 3] += client.x[i] * client.x[i] / options_.samples;
  }
  for (size_t j = 0; j < 3; ++j) {
    // U(-1/2, 1/2) has variance 1/12; squares fall from 1 to 1/100.
    const double expected =
        client.scale * client.scale / 12 * std::pow(10, -static_cast<double>(j));
    EXPECT_NEAR(mean[j], 0, 5 * std::sqrt(expected / options_.samples));
    EXPECT_NEAR(square[j] / expected, 1, 0.05);
  }
}

TEST_F(SyntheticTest, WithoutTruthTheTargetsAreNoise) {
  const SyntheticClient with = Client("client_000");
  options_.truth_sd = 0;
  EXPECT_EQ(SyntheticTruth(options_), std::vector<double>(3, 0));
  const SyntheticClient without = Client("client_000");
  EXPECT_EQ(without.x, with.x);
  options_.truth_sd = 1;
  const std::vector<double> truth = SyntheticTruth(options_);
  for (size_t i = 0; i < with.y.size(); ++i) {
    double expected = without.y[i];
    for (size_t j = 0; j < 3; ++j) expected += truth[j] * with.x[3 * i + j];
    EXPECT_NEAR(with.y[i], expected, 1e-12);
  }
}

TEST_F(SyntheticTest, AnExistingDirectoryIsRefused) {
  fs::create_directories(options_.out);
  EXPECT_TRUE(WriteSynthetic(options_).ok());  // an empty one is fine
  const absl::Status again = WriteSynthetic(options_);
  EXPECT_TRUE(absl::IsAlreadyExists(again)) << again;
  EXPECT_THAT(std::string(again.message()), HasSubstr("choose another --out"));
  options_.out = directory_ + "/file";
  std::ofstream(options_.out) << "x";
  EXPECT_TRUE(absl::IsAlreadyExists(WriteSynthetic(options_)));
}

TEST_F(SyntheticTest, ATrailingSlashAndMissingParentsAreFine) {
  options_.out = directory_ + "/a/b/c/";
  ASSERT_TRUE(WriteSynthetic(options_).ok());
  EXPECT_TRUE(fs::exists(directory_ + "/a/b/c/truth.npy"));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_ + "/a/b"), {}), 1);
}

TEST_F(SyntheticTest, WrongNumbersAreNamed) {
  const auto refused = [](SyntheticOptions options) {
    const absl::Status status = WriteSynthetic(options);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  SyntheticOptions wrong = options_;
  wrong.clients = 0;
  EXPECT_THAT(refused(wrong), HasSubstr("--clients"));
  wrong = options_;
  wrong.dimension = 0;
  EXPECT_THAT(refused(wrong), HasSubstr("--dimension"));
  wrong = options_;
  wrong.noise_sd = -1;
  EXPECT_THAT(refused(wrong), HasSubstr("--noise-sd"));
  wrong.noise_sd = std::nan("");
  EXPECT_THAT(refused(wrong), HasSubstr("--noise-sd"));
  wrong = options_;
  wrong.truth_sd = -1;
  EXPECT_THAT(refused(wrong), HasSubstr("--truth-sd"));
  wrong = options_;
  wrong.conflict = std::nan("");
  EXPECT_THAT(refused(wrong), HasSubstr("--conflict"));
  wrong.conflict = 0.1;
  wrong.identical = true;
  EXPECT_THAT(refused(wrong), HasSubstr("--identical"));
  wrong = options_;
  wrong.identical = wrong.equal_hessians = true;
  EXPECT_THAT(refused(wrong), HasSubstr("choose one"));
  wrong = options_;
  wrong.condition = 0.5;
  EXPECT_THAT(refused(wrong), HasSubstr("--condition"));
  wrong = options_;
  wrong.samples = wrong.dimension = 1u << 20;
  EXPECT_THAT(refused(wrong), HasSubstr("--samples"));
}

}  // namespace
}  // namespace leeway
