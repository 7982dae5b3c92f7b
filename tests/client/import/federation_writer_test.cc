#include "client/import/federation_writer.h"

#include <gmock/gmock.h>

#include "client/import/describe.h"
#include "tests/client/import/test_files.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FederationWriterTest : public ::testing::Test {
 protected:
  std::unique_ptr<FederationWriter> Writer(WriterOptions options = {}) {
    options.out = dir_ / "out";
    return FederationWriter::Create(options).value();
  }
  absl::Status Add(FederationWriter* writer, const std::string& client, Part part,
                   const std::vector<float>& x, const std::vector<int64_t>& y) {
    return writer->Append(client, part, RowsOf(x, y.size(), {x.size() / y.size()}),
                          RowsOf(y, y.size(), {}));
  }
  TempDir dir_;
};

TEST_F(FederationWriterTest, AppendedRowsFollowEachOther) {
  auto writer = Writer();
  ASSERT_TRUE(Add(writer.get(), "a/b", Part::kTrain, {1, 2}, {0}).ok());
  ASSERT_TRUE(Add(writer.get(), "c", Part::kTrain, {9, 9}, {2}).ok());
  ASSERT_TRUE(Add(writer.get(), "a/b", Part::kTrain, {3, 4, 5, 6}, {1, 2}).ok());
  ASSERT_TRUE(Add(writer.get(), "a/b", Part::kTest, {7, 8}, {1}).ok());
  const Json json = writer->Finish({{"kind", "test"}}).value();
  EXPECT_THAT(Shape(dir_ / "out/a%2Fb/train_x.npy"), ElementsAre(3, 2));
  EXPECT_THAT(Floats(dir_ / "out/a%2Fb/train_x.npy"), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(Integers(dir_ / "out/a%2Fb/train_y.npy"), ElementsAre(0, 1, 2));
  EXPECT_THAT(Floats(dir_ / "out/a%2Fb/test_x.npy"), ElementsAre(7, 8));
  EXPECT_EQ(json["client_list"][0]["name"], "a/b");
  EXPECT_EQ(json["samples"]["train"], 4);
  EXPECT_EQ(json["classes"], 3);
  EXPECT_EQ(json["label_histogram"]["train"], (Json{{"0", 1}, {"1", 1}, {"2", 2}}));
  EXPECT_EQ(json["size_percentiles"]["train"]["max"], 3);
  EXPECT_THAT(dir_.List(), ElementsAre("out"));
}

TEST_F(FederationWriterTest, ClientsThatCannotTrainAreLeftOutAndCounted) {
  WriterOptions options;
  options.min_samples = 2;
  auto writer = Writer(options);
  ASSERT_TRUE(Add(writer.get(), "two", Part::kTrain, {1, 2}, {0, 0}).ok());
  ASSERT_TRUE(Add(writer.get(), "one", Part::kTrain, {1}, {5}).ok());
  ASSERT_TRUE(Add(writer.get(), "tester", Part::kTest, {1}, {0}).ok());
  ASSERT_TRUE(writer->Append("none", Part::kTrain, {}, {}).ok());
  const Json json = writer->Finish({}).value();
  EXPECT_EQ(json["clients"], 1);
  EXPECT_EQ(json["classes"], 1);
  EXPECT_EQ(json["skipped"], (Json{{"clients_without_samples", 1},
                                   {"clients_with_test_data_only", 1},
                                   {"clients_below_min_samples", 1}}));
}

TEST_F(FederationWriterTest, NothingIsLeftWithoutFinish) {
  auto writer = Writer();
  ASSERT_TRUE(Add(writer.get(), "a", Part::kTrain, {1, 2}, {0}).ok());
  EXPECT_THAT(dir_.List(), ElementsAre(HasSubstr("out.partial-")));
  writer.reset();
  EXPECT_THAT(dir_.List(), IsEmpty());
}

TEST_F(FederationWriterTest, AnExistingDirectoryIsRefusedWithTheRemedy) {
  dir_.Write("out/file", "precious");
  WriterOptions options;
  options.out = dir_ / "out/";
  EXPECT_THAT(FederationWriter::Create(options).status().message(),
              HasSubstr("exists; remove it or choose another --out"));
}

TEST_F(FederationWriterTest, AClientThatDoesNotFitIsNamed) {
  WriterOptions options;
  options.classes = 3;
  auto writer = Writer(options);
  ASSERT_TRUE(Add(writer.get(), "a", Part::kTrain, {1, 2}, {0}).ok());
  EXPECT_THAT(Add(writer.get(), "b", Part::kTrain, {1, 2, 3}, {0}).message(),
              HasSubstr("client b: x has rows of float32 [3], but those of client a are"));
  EXPECT_THAT(Add(writer.get(), "b", Part::kTrain, {1, 2}, {3}).message(),
              HasSubstr("client b: label 3 of sample 0 is out of range: it must be from 0 to 2"));
  EXPECT_THAT(Add(writer.get(), "b", Part::kTrain, {1, 2, 1, 2}, {0, -1}).message(),
              HasSubstr("client b: label -1 of sample 1"));
  EXPECT_THAT(Add(writer.get(), "b", Part::kTrain, {1, NAN}, {0}).message(),
              HasSubstr("client b: x of sample 0 is not a finite number"));
}

TEST_F(FederationWriterTest, UnknownTokenIdsAreRefused) {
  auto writer = Writer();
  writer->SetVocabulary(10);
  const std::vector<int32_t> x = {1, 2, 3, 4};
  const std::vector<int32_t> y = {2, 3, 4, 10};
  EXPECT_THAT(writer->Append("a", Part::kTrain, RowsOf(x, 2, {2}), RowsOf(y, 2, {2})).message(),
              HasSubstr("client a: token id 10 of sample 1 is out of range"));
}

TEST_F(FederationWriterTest, XCanTakeAnotherShapeOfTheSameSize) {
  WriterOptions options;
  options.shape = {2, 1, 2};
  auto writer = Writer(options);
  ASSERT_TRUE(Add(writer.get(), "a", Part::kTrain, {1, 2, 3, 4}, {0}).ok());
  ASSERT_TRUE(writer->Finish({}).ok());
  EXPECT_THAT(Shape(dir_ / "out/a/train_x.npy"), ElementsAre(1, 2, 1, 2));
}

TEST_F(FederationWriterTest, DescribeAgreesWithAndWithoutTheSummaryFile) {
  auto writer = Writer();
  ASSERT_TRUE(Add(writer.get(), "a", Part::kTrain, {1, 2}, {0, 1}).ok());
  ASSERT_TRUE(Add(writer.get(), "b", Part::kTrain, {1}, {1}).ok());
  const Json json = writer->Finish({{"kind", "test"}}).value();
  EXPECT_EQ(DescribeFederation(dir_ / "out", /*recount=*/false).value(), json);
  EXPECT_EQ(DescribeFederation(dir_ / "out", /*recount=*/true).value(), json);
  std::remove((dir_ / "out/federation.json").c_str());
  const Json found = DescribeFederation(dir_ / "out", /*recount=*/false).value();
  for (const char* key : {"clients", "samples", "classes", "label_histogram", "client_list"}) {
    EXPECT_EQ(found[key], json[key]) << key;
  }
  EXPECT_THAT(SummaryTable(found), HasSubstr("clients     2\n"));
}

TEST_F(FederationWriterTest, DescribeFindsASummaryThatIsNotOfThisDirectory) {
  auto writer = Writer();
  ASSERT_TRUE(Add(writer.get(), "a", Part::kTrain, {1, 2}, {0, 1}).ok());
  ASSERT_TRUE(Add(writer.get(), "b", Part::kTrain, {1}, {1}).ok());
  ASSERT_TRUE(writer->Finish({}).ok());
  std::remove((dir_ / "out/b/train_x.npy").c_str());
  EXPECT_THAT(DescribeFederation(dir_ / "out", false).status().message(),
              HasSubstr("federation.json and the files disagree about \"clients\" (2, 1)"));
}

}  // namespace
}  // namespace leeway
