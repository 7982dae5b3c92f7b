#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "client/import/byte_stream.h"
#include "client/import/describe.h"
#include "client/import/importers.h"
#include "common/npy.h"
#include "tests/client/import/test_files.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TextTest : public ::testing::Test {
 protected:
  absl::StatusOr<Json> Import(const std::string& content) {
    options_.source = dir_.Write("s.tsv", content);
    options_.writer.out = dir_ / "out";
    return ImportText(options_);
  }
  TextTest() {
    options_.sequences.length = 3;
    options_.min_sentences = 2;
    options_.test_fraction = 0.5;
  }
  TempDir dir_;
  TextOptions options_;
};

constexpr char kHeader[] = "user_id\tcreation_date\ttype\tsource_id\ttokens\n";

// The later sentence of user 5 comes first in the file; its words are not in the
// vocabulary, nor are those of user 6, who wrote too little.
TEST_F(TextTest, LastSentencesByDateAreTheTestPart) {
  const Json json = Import(Gzip(absl::StrCat(kHeader,
                                             "5\t2012-01-02T00:00:00\tquestion\t1\tto go far\n"
                                             "5\t2011-01-02T00:00:00\tanswer\t2\tto be  to\n"
                                             "6\t2011-01-02T00:00:00\tanswer\t3\tnever\n")))
                        .value();
  EXPECT_EQ(json["clients"], 1);
  EXPECT_EQ(json["texts"], (Json{{"users", 2}, {"all", 3}, {"kept", 2}}));
  EXPECT_EQ(json["skipped"]["users_below_min_sentences"], 1);
  EXPECT_EQ(ReadAll(dir_ / "out/vocabulary.txt").value(), "<pad>\nto\nbe\n<unk>\n<bos>\n<eos>\n");
  EXPECT_THAT(Integers(dir_ / "out/5/train_x.npy"), ElementsAre(4, 1, 2, 1, 0, 0));
  EXPECT_THAT(Integers(dir_ / "out/5/train_y.npy"), ElementsAre(1, 2, 1, 5, 0, 0));
  EXPECT_THAT(Integers(dir_ / "out/5/test_y.npy"), ElementsAre(1, 3, 3, 5, 0, 0));
  EXPECT_EQ(json["targets"], (Json{{"train", 4}, {"test", 4}}));
}

TEST_F(TextTest, TheVocabularyKeepsTheMostFrequentWords) {
  options_.sequences.vocabulary = 1;
  const Json json = Import("u\t1\t\t\tb a a\nu\t2\t\t\ta\n").value();  // no header
  EXPECT_EQ(ReadAll(dir_ / "out/vocabulary.txt").value(), "<pad>\na\n<unk>\n<bos>\n<eos>\n");
  EXPECT_EQ(json["vocabulary"]["unknown_tokens"], (Json{{"train", 1}, {"test", 0}}));
}

TEST_F(TextTest, BadInputIsNamed) {
  EXPECT_THAT(Import(absl::StrCat(kHeader, "5\tdate\tq\t1\n")).status().message(),
              HasSubstr("s.tsv:2: has 4 tab-separated columns, expected 5"));
  EXPECT_THAT(Import(absl::StrCat(kHeader, "\tdate\tq\t1\tword\n")).status().message(),
              HasSubstr("s.tsv:2: has no user_id"));
  EXPECT_THAT(Import(absl::StrCat(kHeader, "5\tdate\tq\t1\tword\n")).status().message(),
              HasSubstr("s.tsv: none of its 1 users has 2 sentences; lower --min-sentences"));
  EXPECT_THAT(Import(Gzip(kHeader).substr(0, 25)).status().message(),
              HasSubstr("s.tsv: the gzip data end too early"));
  EXPECT_THAT(dir_.List(), ElementsAre("s.tsv"));
}

TEST_F(TextTest, CheckFindsUnknownTokenIds) {
  ASSERT_TRUE(Import("u\t1\t\t\tb a a\nu\t2\t\t\ta\n").ok());
  EXPECT_TRUE(DescribeFederation(dir_ / "out", /*recount=*/true).ok());
  const std::vector<int32_t> ids = {1, 2, 99};
  ASSERT_TRUE(WriteNpy<int32_t>(dir_ / "out/u/test_x.npy", {1, 3}, ids).ok());
  EXPECT_THAT(DescribeFederation(dir_ / "out", /*recount=*/true).status().message(),
              HasSubstr("out/u/test_x.npy: client u: token id 99 is unknown"));
}

}  // namespace
}  // namespace leeway
