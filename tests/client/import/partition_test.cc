#include "client/import/partition.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "client/import/assignment.h"
#include "tests/client/import/test_files.h"

namespace leeway {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kSamples = 3000;
constexpr uint64_t kClients = 20;

std::vector<int64_t> Labels() {
  std::vector<int64_t> labels;
  for (uint64_t i = 0; i < kSamples; ++i) labels.push_back(static_cast<int64_t>(i * i % 7));
  return labels;
}

Rng Stream(uint64_t seed) { return Rng(seed, 0, 0, Purpose::kPartition); }

void ExpectEachOnce(const Assignment& assignment, uint64_t samples) {
  std::vector<uint32_t> all;
  for (const auto& client : assignment) all.insert(all.end(), client.begin(), client.end());
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), samples);
  for (uint32_t i = 0; i < samples; ++i) ASSERT_EQ(all[i], i);
}

// Mean over clients of the distance between a client's label shares and the pool's.
double LabelSkew(const Assignment& assignment, const std::vector<int64_t>& labels) {
  std::map<int64_t, double> pool;
  for (int64_t label : labels) pool[label] += 1.0 / static_cast<double>(labels.size());
  double skew = 0;
  for (const auto& client : assignment) {
    std::map<int64_t, double> shares;
    for (uint32_t sample : client) {
      shares[labels[sample]] += 1.0 / static_cast<double>(client.size());
    }
    for (const auto& [label, share] : pool) skew += std::abs(shares[label] - share) / 2;
  }
  return skew / static_cast<double>(assignment.size());
}

TEST(AssignmentTest, EveryRuleDealsEachSampleOnceAndIsSeeded) {
  const std::vector<int64_t> labels = Labels();
  const auto rules = std::vector<std::function<Assignment(uint64_t)>>{
      [&](uint64_t seed) {
        Rng rng = Stream(seed);
        return AssignSizes(EqualSizes(kSamples, kClients), rng);
      },
      [&](uint64_t seed) {
        Rng rng = Stream(seed);
        return AssignSizes(LogNormalSizes(kSamples, kClients, 1.5, rng), rng);
      },
      [&](uint64_t seed) {
        Rng rng = Stream(seed);
        return AssignDirichlet(labels, kClients, 0.3, rng);
      },
      [&](uint64_t seed) {
        Rng rng = Stream(seed);
        return AssignShards(labels, kClients, 2, rng);
      },
      [&](uint64_t seed) {
        Rng rng = Stream(seed);
        return FollowShares(AssignDirichlet(labels, kClients, 0.3, rng), labels, labels, kSamples,
                            rng);
      }};
  for (const auto& rule : rules) {
    const Assignment assignment = rule(3);
    EXPECT_EQ(assignment.size(), kClients);
    ExpectEachOnce(assignment, kSamples);
    EXPECT_EQ(assignment, rule(3));
    EXPECT_NE(assignment, rule(4));
  }
}

TEST(AssignmentTest, LargeAlphaIsNearlyIidAndSmallAlphaIsNot) {
  const std::vector<int64_t> labels = Labels();
  Rng rng = Stream(1);
  const Assignment iid = AssignSizes(EqualSizes(kSamples, kClients), rng);
  const Assignment even = AssignDirichlet(labels, kClients, 1e5, rng);
  const Assignment uneven = AssignDirichlet(labels, kClients, 0.05, rng);
  EXPECT_LT(LabelSkew(even, labels), LabelSkew(iid, labels));
  EXPECT_GT(LabelSkew(uneven, labels), 0.5);
  for (const auto& client : even) {
    EXPECT_NEAR(static_cast<double>(client.size()), kSamples / kClients, 8);
  }
}

TEST(AssignmentTest, DirichletSharesHaveTheRightVariance) {
  // A share of Dirichlet(a, ..., a) over n has variance (1/n)(1 - 1/n)/(na + 1).
  const std::vector<int64_t> labels(10000, 0);
  Rng rng = Stream(5);
  double squares = 0;
  const int draws = 400;
  for (int i = 0; i < draws; ++i) {
    for (const auto& client : AssignDirichlet(labels, 10, 0.5, rng)) {
      const double share = static_cast<double>(client.size()) / 10000 - 0.1;
      squares += share * share;
    }
  }
  EXPECT_NEAR(squares / (draws * 10), 0.1 * 0.9 / 6, 0.001);
}

TEST(AssignmentTest, AlphaTooSmallToDrawGivesEachClassToOneClient) {
  const std::vector<int64_t> labels = Labels();
  Rng rng = Stream(1);
  const Assignment assignment = AssignDirichlet(labels, kClients, 1e-9, rng);
  ExpectEachOnce(assignment, kSamples);
}

TEST(AssignmentTest, ShardsBoundTheLabelsOfAClient) {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < 1000; ++i) labels.push_back(i % 10);
  Rng rng = Stream(2);
  for (const auto& client : AssignShards(labels, 50, 2, rng)) {
    std::set<int64_t> seen;
    for (uint32_t sample : client) seen.insert(labels[sample]);
    EXPECT_EQ(client.size(), 20U);
    EXPECT_LE(seen.size(), 2U);
  }
}

TEST(AssignmentTest, TestSamplesFollowTheTrainingShares) {
  const std::vector<int64_t> labels = {0, 0, 0, 0, 1, 1, 1, 1};
  const Assignment train = {{0, 1, 2}, {3, 4, 5, 6, 7}};
  const std::vector<int64_t> test = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2};
  Rng rng = Stream(2);
  const Assignment dealt = FollowShares(train, labels, test, test.size(), rng);
  // 6 of class 0 and 3 of class 2, which no one has trained on, in the ratio of sizes.
  EXPECT_EQ(dealt[0].size(), 9U);
  EXPECT_EQ(std::count_if(dealt[0].begin(), dealt[0].end(), [](uint32_t i) { return i < 8; }), 6);
}

TEST(AssignmentTest, FillUpLeavesNoClientEmpty) {
  Assignment assignment = {{}, {0, 1, 2, 3, 4}, {5}, {}};
  EXPECT_EQ(FillUp(&assignment, 1), 2U);
  ExpectEachOnce(assignment, 6);
  for (const auto& client : assignment) EXPECT_GE(client.size(), 1U);
}

// A source of four clients; x of a sample is its number, so that it can be followed.
class PartitionTest : public ::testing::Test {
 protected:
  PartitionTest() {
    WriterOptions options;
    options.out = dir_ / "source";
    auto writer = FederationWriter::Create(options).value();
    float next = 0;
    for (int client = 0; client < 4; ++client) {
      for (Part part : {Part::kTrain, Part::kTest}) {
        if (part == Part::kTest && client == 2) continue;
        std::vector<float> x;
        std::vector<int64_t> y;
        for (int i = 0; i < (part == Part::kTrain ? 10 + 5 * client : 3 + client); ++i) {
          y.push_back(client);
          x.push_back(next++);
        }
        EXPECT_TRUE(writer
                        ->Append(absl::StrCat("user/", client), part, RowsOf(x, y.size(), {1}),
                                 RowsOf(y, y.size(), {}))
                        .ok());
      }
    }
    EXPECT_TRUE(writer->WriteFile("vocabulary.txt", "a\n").ok());
    EXPECT_TRUE(writer->Finish({{"kind", "test"}}).ok());
    options_.source = options.out;
  }

  absl::StatusOr<Json> Partition(const std::string& by, uint64_t clients, const char* out = "out") {
    options_.by = by;
    options_.clients = clients;
    options_.writer.out = dir_ / out;
    return PartitionFederation(options_);
  }

  // x with y of a part, over all clients, sorted.
  std::vector<std::pair<float, int64_t>> Samples(const std::string& root, Part part) {
    std::vector<std::pair<float, int64_t>> samples;
    const std::vector<ClientEntry> clients = ListClients(root).value();
    for (const ClientEntry& client : clients) {
      const auto mapped = MapPart(root, client, part).value();
      if (!mapped.has_value()) continue;
      const std::vector<float> x = mapped->x.As<float>();
      const std::vector<int64_t> y = mapped->y.As<int64_t>();
      for (size_t i = 0; i < x.size(); ++i) samples.emplace_back(x[i], y[i]);
    }
    std::sort(samples.begin(), samples.end());
    return samples;
  }

  TempDir dir_;
  PartitionOptions options_;
};

TEST_F(PartitionTest, EveryRuleKeepsAllSamplesWithTheirLabels) {
  for (const char* by : {"iid", "dirichlet", "shards", "size", "natural", "shuffle"}) {
    const uint64_t clients = std::string(by) == "shuffle" ? 0 : 3;
    const Json json = Partition(by, clients, by).value();
    EXPECT_EQ(json["options"]["by"], by);
    EXPECT_EQ(json["options"]["seed"], 1);
    EXPECT_EQ(json["from"]["kind"], "test");
    EXPECT_EQ(Samples(dir_ / by, Part::kTrain), Samples(options_.source, Part::kTrain)) << by;
    EXPECT_EQ(Samples(dir_ / by, Part::kTest), Samples(options_.source, Part::kTest)) << by;
  }
}

TEST_F(PartitionTest, ShuffleKeepsNamesAndSizesAndMixesSamples) {
  const Json before = ReadDescription(options_.source).value().value();
  const Json after = Partition("shuffle", 0).value();
  EXPECT_EQ(after["client_list"], before["client_list"]);
  EXPECT_EQ(after["size_percentiles"], before["size_percentiles"]);
  const std::vector<int64_t> labels = Integers(dir_ / "out/user%2F3/train_y.npy");
  EXPECT_GT(std::set<int64_t>(labels.begin(), labels.end()).size(), 1U);
}

TEST_F(PartitionTest, TheTestPartCanBeCentral) {
  options_.central_test = true;
  const Json json = Partition("iid", 3).value();
  EXPECT_EQ(json["clients"], 3);
  EXPECT_EQ(json["central_test_samples"], 3 + 4 + 6);
  EXPECT_EQ(json["samples"]["test"], 0);
  EXPECT_EQ(Samples(dir_ / "out", Part::kTrain), Samples(options_.source, Part::kTrain));
  std::vector<float> central = Floats(dir_ / "out/evaluator/test_x.npy");
  std::vector<float> expected;
  for (const auto& [x, y] : Samples(options_.source, Part::kTest)) expected.push_back(x);
  std::sort(central.begin(), central.end());
  EXPECT_EQ(central, expected);
  // Dealt anew, a federation keeps its evaluator.
  options_.source = dir_ / "out";
  options_.central_test = false;
  ASSERT_TRUE(Partition("shuffle", 0, "again").ok());
  EXPECT_EQ(Floats(dir_ / "again/evaluator/test_x.npy"), Floats(dir_ / "out/evaluator/test_x.npy"));
  options_.central_test = true;
  EXPECT_THAT(std::string(Partition("shuffle", 0, "none").status().message()),
              HasSubstr("has no test samples"));
}

TEST_F(PartitionTest, NaturalKeepsClientsWholeAndCanJoinThem) {
  ASSERT_TRUE(Partition("natural", 0).ok());
  EXPECT_EQ(Floats(dir_ / "out/user%2F1/train_x.npy"),
            Floats(dir_ / "source/user%2F1/train_x.npy"));
  ASSERT_TRUE(Partition("natural", 2, "joined").ok());
  std::set<int64_t> seen;
  for (const char* client : {"client_0", "client_1"}) {
    const std::vector<int64_t> y = Integers(dir_ / absl::StrCat("joined/", client, "/train_y.npy"));
    const std::set<int64_t> labels(y.begin(), y.end());
    EXPECT_EQ(labels.size(), 2U);
    seen.insert(labels.begin(), labels.end());
  }
  EXPECT_EQ(seen.size(), 4U);
}

TEST_F(PartitionTest, TheSameSeedGivesTheSameFiles) {
  ASSERT_TRUE(Partition("dirichlet", 5, "one").ok());
  ASSERT_TRUE(Partition("dirichlet", 5, "two").ok());
  options_.seed = 2;
  ASSERT_TRUE(Partition("dirichlet", 5, "other").ok());
  bool differs = false;
  for (int i = 0; i < 5; ++i) {
    const std::string file = absl::StrCat("/client_", i, "/train_x.npy");
    EXPECT_EQ(Floats(dir_ / "one" + file), Floats(dir_ / "two" + file));
    differs |= Floats(dir_ / "one" + file) != Floats(dir_ / "other" + file);
  }
  EXPECT_TRUE(differs);
}

TEST_F(PartitionTest, ImpossibleAsksAreRefused) {
  EXPECT_THAT(Partition("iid", 0).status().message(), HasSubstr("--clients is missing"));
  EXPECT_THAT(Partition("iid", 71).status().message(),
              HasSubstr("--clients 71: " + options_.source + " has only 4 clients and 70"));
  EXPECT_THAT(Partition("natural", 5).status().message(), HasSubstr("has only 4 clients"));
  EXPECT_THAT(Partition("shards", 36).status().message(), HasSubstr("--clients 36"));
  EXPECT_THAT(Partition("shuffle", 3).status().message(), HasSubstr("leave --clients out"));
  EXPECT_THAT(Partition("random", 3).status().message(), HasSubstr("--by random: expected iid"));
  options_.alpha = 0;
  EXPECT_THAT(Partition("dirichlet", 3).status().message(), HasSubstr("--alpha must be above 0"));
  options_.source = dir_ / "nowhere";
  EXPECT_THAT(Partition("iid", 3).status().message(), HasSubstr("nowhere"));
  EXPECT_THAT(dir_.List(), ElementsAre("source"));
}

TEST_F(PartitionTest, RulesByLabelNeedOneLabelPerSample) {
  WriterOptions writer_options;
  writer_options.out = dir_ / "text";
  auto writer = FederationWriter::Create(writer_options).value();
  const std::vector<int32_t> ids = {1, 2, 3, 4, 5, 6};
  ASSERT_TRUE(writer->Append("a", Part::kTrain, RowsOf(ids, 3, {2}), RowsOf(ids, 3, {2})).ok());
  ASSERT_TRUE(writer->Finish({}).ok());
  options_.source = writer_options.out;
  EXPECT_THAT(Partition("dirichlet", 2).status().message(),
              HasSubstr("--by dirichlet needs one whole-number label per sample"));
  EXPECT_EQ(Partition("iid", 3).value()["clients"], 3);
}

}  // namespace
}  // namespace leeway
