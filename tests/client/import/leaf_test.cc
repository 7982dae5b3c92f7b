#include <gmock/gmock.h>

#include "client/import/importers.h"
#include "tests/client/import/test_files.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LeafTest : public ::testing::Test {
 protected:
  absl::StatusOr<Json> Import() {
    options_.source = dir_ / "leaf";
    options_.writer.out = dir_ / "out";
    return ImportLeaf(options_);
  }
  TempDir dir_;
  LeafOptions options_;
};

TEST_F(LeafTest, UsersOfManyFilesBecomeClients) {
  // The order of users differs from that of user_data; "b" is in two files.
  dir_.Write("leaf/train/0.json.gz",
             Gzip(R"({"users": ["a", "b"], "num_samples": [1, 2], "user_data": {
                  "b": {"y": [1, 0], "x": [[0.5, 1], [2, 3]]},
                  "a": {"x": [[-1e-3, 4]], "y": [2]}}})"));
  dir_.Write("leaf/train/1.json",
             R"({"user_data": {"b": {"x": [[7, 8]], "y": [1]}}, "hierarchies": [["z"]],
                 "num_samples": [1], "users": ["b"]})");
  dir_.Write("leaf/test/0.json",
             R"({"users": ["a", "t"], "num_samples": [1, 1], "user_data": {
                 "a": {"x": [[5, 6]], "y": [0]}, "t": {"x": [[5, 6]], "y": [0]}}})");
  const Json json = Import().value();
  EXPECT_EQ(json["clients"], 2);
  EXPECT_EQ(json["samples"], (Json{{"train", 4}, {"test", 1}}));
  EXPECT_EQ(json["skipped"]["clients_with_test_data_only"], 1);
  EXPECT_THAT(Floats(dir_ / "out/b/train_x.npy"), ElementsAre(0.5, 1, 2, 3, 7, 8));
  EXPECT_THAT(Integers(dir_ / "out/b/train_y.npy"), ElementsAre(1, 0, 1));
  EXPECT_THAT(Floats(dir_ / "out/a/train_x.npy"), ElementsAre(-1e-3F, 4));
  EXPECT_THAT(Floats(dir_ / "out/a/test_x.npy"), ElementsAre(5, 6));
}

TEST_F(LeafTest, ADirectoryOfFilesIsTrainingDataAndTestsCanBeElsewhere) {
  dir_.Write("leaf/a.json", R"({"users":["a"],"user_data":{"a":{"x":[[[1,2],[3,4]]],"y":[0]}}})");
  options_.test = dir_ / "other";
  dir_.Write("other/a.json", R"({"users":["a"],"user_data":{"a":{"x":[[[1,2],[3,5]]],"y":[0]}}})");
  options_.writer.shape = {2, 2};
  EXPECT_EQ(Import().value()["samples"], (Json{{"train", 1}, {"test", 1}}));
  EXPECT_THAT(Shape(dir_ / "out/a/test_x.npy"), ElementsAre(1, 2, 2));
}

TEST_F(LeafTest, TokenIdsBecomeIntegers) {
  dir_.Write("leaf/a.json", R"({"users":["a"],"user_data":{"a":{"x":[[1,9]],"y":[3]}}})");
  options_.vocabulary = 10;
  EXPECT_EQ(Import().value()["x"]["type"], "int32");
  EXPECT_THAT(Integers(dir_ / "out/a/train_x.npy"), ElementsAre(1, 9));
}

struct BadLeaf {
  const char* name;
  std::string content;
  const char* message;
};

class BadLeafTest : public ::testing::TestWithParam<BadLeaf> {};

TEST_P(BadLeafTest, IsNamedAndLeavesNothing) {
  TempDir dir;
  dir.Write("leaf/f.json", GetParam().content);
  LeafOptions options;
  options.source = dir / "leaf";
  options.writer.out = dir / "out";
  options.writer.classes = 62;
  const absl::StatusOr<Json> json = ImportLeaf(options);
  ASSERT_FALSE(json.ok());
  EXPECT_THAT(json.status().message(), HasSubstr("f.json"));
  EXPECT_THAT(json.status().message(), HasSubstr(GetParam().message));
  EXPECT_THAT(dir.List(), ElementsAre("leaf"));
}

constexpr char kGood[] = R"({"users":["ann"],"user_data":{"ann":{"x":[[1,2],[3,4]],"y":[0,1]}}})";

INSTANTIATE_TEST_SUITE_P(
    All, BadLeafTest,
    ::testing::Values(
        BadLeaf{"Empty", "", "bad JSON"},
        BadLeaf{"Truncated", std::string(kGood).substr(0, 45), "bad JSON"},
        BadLeaf{"NoLastBrace", std::string(kGood).substr(0, sizeof(kGood) - 2), "bad JSON"},
        BadLeaf{"Trailing", std::string(kGood) + "}", "bad JSON"},
        BadLeaf{"NotJson", "hello", "holds another kind of value than LEAF files do"},
        BadLeaf{"Nan", R"({"users":["ann"],"user_data":{"ann":{"x":[[NaN]],"y":[0]}}})",
                "client ann: x of sample 0: bad JSON"},
        BadLeaf{"TruncatedGzip", Gzip(kGood).substr(0, 30), "end too early"},
        BadLeaf{"UserWithoutData",
                R"({"users":["ann","bob"],"user_data":{"ann":{"x":[[1]],"y":[0]}}})",
                "client bob: is listed in \"users\", but is not in \"user_data\""},
        BadLeaf{"DataWithoutUser", R"({"users":[],"user_data":{"ann":{"x":[[1]],"y":[0]}}})",
                "\"user_data\" has 1 clients, but \"users\" lists 0"},
        BadLeaf{"WrongCount",
                R"({"users":["ann"],"num_samples":[2],"user_data":{"ann":{"x":[[1]],"y":[0]}}})",
                "client ann: num_samples says 2, but user_data has 1"},
        BadLeaf{"Ragged", R"({"users":["ann"],"user_data":{"ann":{"x":[[1,2],[3]],"y":[0,1]}}})",
                "client ann: x of sample 1 has 1 values, sample 0 has 2"},
        BadLeaf{"UnequalXandY", R"({"users":["ann"],"user_data":{"ann":{"x":[[1],[3]],"y":[0]}}})",
                "client ann: x has 2 samples, y has 1 labels"},
        BadLeaf{"NoY", R"({"users":["ann"],"user_data":{"ann":{"x":[[1],[3]]}}})",
                "client ann: has no \"y\""},
        BadLeaf{"Label", R"({"users":["ann"],"user_data":{"ann":{"x":[[1]],"y":[62]}}})",
                "client ann: label 62 of sample 0 is out of range: it must be from 0 to 61"},
        BadLeaf{"FractionalLabel", R"({"users":["ann"],"user_data":{"ann":{"x":[[1]],"y":[0.5]}}})",
                "client ann: y of sample 0 is 0.5, expected a whole number"},
        BadLeaf{"TooLarge", R"({"users":["ann"],"user_data":{"ann":{"x":[[1e39]],"y":[0]}}})",
                "client ann: x of sample 0: 1e+39 does not fit in float32"},
        BadLeaf{"Text", R"({"users":["ann"],"user_data":{"ann":{"x":["to be"],"y":["o"]}}})",
                "client ann: x of sample 0: is text"},
        BadLeaf{"MixedDimensions", R"({"users":["ann","bob"],"user_data":{
                "ann":{"x":[[1]],"y":[0]},"bob":{"x":[[1,2]],"y":[0]}}})",
                "client bob: x has rows of float32 [2], but those of client ann are float32 [1]"}),
    [](const auto& test) { return test.param.name; });

TEST_F(LeafTest, NoClientWithSamplesIsAnError) {
  dir_.Write("leaf/f.json", R"({"users":["ann"],"user_data":{"ann":{"x":[],"y":[]}}})");
  EXPECT_THAT(Import().status().message(), HasSubstr("leaf: no client has a training sample: ann"));
}

TEST_F(LeafTest, UnknownTokenIdsAreNamed) {
  dir_.Write("leaf/f.json", R"({"users":["ann"],"user_data":{"ann":{"x":[[10]],"y":[0]}}})");
  options_.vocabulary = 10;
  EXPECT_THAT(Import().status().message(),
              HasSubstr("f.json: client ann: x of sample 0: token id 10 is out of range"));
}

}  // namespace
}  // namespace leeway
