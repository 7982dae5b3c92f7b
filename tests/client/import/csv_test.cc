#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>

#include "client/import/describe.h"
#include "client/import/importers.h"
#include "tests/client/import/test_files.h"

namespace leeway {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class CsvTest : public ::testing::Test {
 protected:
  CsvTest() {
    options_.sources = {dir_ / "csv"};
    options_.writer.out = dir_ / "out";
    options_.label = "y";
  }
  TempDir dir_;
  CsvOptions options_;
};

TEST_F(CsvTest, OneFilePerHospital) {
  // The same level is written "1.0" here and "1" there, as in the heart data.
  dir_.Write("csv/processed.rome.data", "50,1.0,?,0\n60,3.0,7,2\n\n?,1.0,7,0\n");
  dir_.Write("csv/processed.oslo.data.gz", Gzip("70,2,1,1\r\n80,1,?,0\r\n"));
  options_.strip_prefix = "processed.";
  options_.header = false;
  options_.columns = {"age", "cp", "thal", "y"};
  options_.drop_columns = {"thal"};
  options_.one_hot = {"cp"};
  options_.label_positive_above = 0;
  const Json json = ImportCsv(options_).value();
  EXPECT_EQ(json["features"], (Json{"age", "cp=2", "cp=3"}));
  EXPECT_EQ(json["one_hot_levels"]["cp"], (Json{"1", "2", "3"}));
  EXPECT_EQ(json["skipped"]["rows_with_missing_values"], 1);
  EXPECT_EQ(json["rows_with_missing_values"], (Json{{"rome", 1}}));
  EXPECT_THAT(Floats(dir_ / "out/rome/train_x.npy"), ElementsAre(50, 0, 0, 60, 0, 1));
  EXPECT_THAT(Integers(dir_ / "out/rome/train_y.npy"), ElementsAre(0, 1));
  EXPECT_THAT(Floats(dir_ / "out/oslo/train_x.npy"), ElementsAre(70, 1, 0, 80, 0, 0));
}

TEST_F(CsvTest, AColumnNamesTheClientAndWordsAreClasses) {
  dir_.Write(
      "csv/all.csv",
      "\xef\xbb\xbfsite, x ,y\nA,1,>50K\n\"B, C\",2,<=50K\n\"say \"\"hi\"\"\",3,>50K\nA,4,<=50K\n");
  options_.client_column = "site";
  const Json json = ImportCsv(options_).value();
  EXPECT_EQ(json["clients"], 3);
  EXPECT_EQ(json["label_levels"], (Json{"<=50K", ">50K"}));
  EXPECT_THAT(Floats(dir_ / "out/A/train_x.npy"), ElementsAre(1, 4));
  EXPECT_THAT(Integers(dir_ / "out/A/train_y.npy"), ElementsAre(1, 0));
  EXPECT_THAT(Integers(dir_ / "out/B, C/train_y.npy"), ElementsAre(0));
  EXPECT_THAT(Integers(dir_ / "out/say \"hi\"/train_y.npy"), ElementsAre(1));
}

TEST_F(CsvTest, ScalingUsesAllTrainingRowsAndIsRecorded) {
  dir_.Write("csv/a.csv", "x,c,y\n1,5,0\n3,5,1\n");
  dir_.Write("csv/b.csv", "x,c,y\n5,5,0\n7,5,1\n");
  options_.scale = "standard";
  const Json json = ImportCsv(options_).value();
  EXPECT_EQ(json["scaling"]["x"]["mean"], 4);
  EXPECT_DOUBLE_EQ(json["scaling"]["x"]["sd"].get<double>(), std::sqrt(5.0));
  EXPECT_FLOAT_EQ(Floats(dir_ / "out/a/train_x.npy")[0], static_cast<float>(-3 / std::sqrt(5.0)));
  // A column that never changes, such as an intercept, is left alone.
  EXPECT_EQ(json["scaling"]["c"], (Json{{"mean", 0.0}, {"sd", 1.0}}));
  EXPECT_EQ(Floats(dir_ / "out/a/train_x.npy")[1], 5);
}

TEST_F(CsvTest, UnscaledColumnsAreNamedWithTheRemedy) {
  std::string rows = "age,smoker,chol,y\n";
  for (int i = 0; i < 40; ++i) {
    rows += std::to_string(30 + i) + "," + std::to_string(i % 2) + "," + std::to_string(200 + i) +
            ",0\n";
  }
  dir_.Write("csv/a.csv", rows);
  const Json json = ImportCsv(options_).value();
  ASSERT_EQ(json["notes"].size(), 1u);
  // The mean squares of chol and smoker: 48,314 and 0.5.
  EXPECT_THAT(json["notes"][0].get<std::string>(),
              AllOf(HasSubstr("chol (typical size 220), age (typical size 50.8)"),
                    HasSubstr("kappa of a linear model at least 9.7e+04"),
                    HasSubstr("--scale standard"), Not(HasSubstr("smoker"))));
  EXPECT_THAT(SummaryTable(json), HasSubstr("note        unscaled columns: chol"));
  EXPECT_EQ(DescribeFederation(dir_ / "out", true).value()["notes"], json["notes"]);
  std::filesystem::remove(dir_ / "out/federation.json");  // and with it the names
  EXPECT_THAT(DescribeFederation(dir_ / "out", false).value()["notes"][0].get<std::string>(),
              HasSubstr("column 2 (typical size 220)"));

  options_.scale = "standard";
  options_.writer.out = dir_ / "scaled";
  EXPECT_THAT(ImportCsv(options_).value()["notes"], IsEmpty());
}

TEST_F(CsvTest, ScalesThatNeedNoChangeAreNotMentioned) {
  // A rare category, and numbers of about one size.
  std::string rows = "a,b,rare,y\n";
  for (int i = 0; i < 2000; ++i) {
    rows += std::to_string(i % 7) + "," + std::to_string(-2 + i % 5) + "," +
            std::to_string(i == 0 ? 1 : 0) + ",0\n";
  }
  dir_.Write("csv/a.csv", rows);
  EXPECT_THAT(ImportCsv(options_).value()["notes"], IsEmpty());
}

TEST_F(CsvTest, TheTestPartIsSeededAndCompletesTheTrainingPart) {
  std::string rows = "x,y\n";
  for (int i = 0; i < 50; ++i) rows += std::to_string(i) + ",0\n";
  dir_.Write("csv/a.csv", rows);
  options_.test_fraction = 0.2;
  std::vector<float> tests[3];
  for (int run = 0; run < 3; ++run) {
    options_.seed = run == 2 ? 8 : 7;
    options_.writer.out = dir_ / ("out" + std::to_string(run));
    ASSERT_TRUE(ImportCsv(options_).ok());
    tests[run] = Floats(options_.writer.out + "/a/test_x.npy");
    std::vector<float> all = Floats(options_.writer.out + "/a/train_x.npy");
    all.insert(all.end(), tests[run].begin(), tests[run].end());
    std::sort(all.begin(), all.end());
    for (int i = 0; i < 50; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], static_cast<float>(i));
  }
  EXPECT_EQ(tests[0].size(), 10U);
  EXPECT_EQ(tests[0], tests[1]);
  EXPECT_NE(tests[0], tests[2]);
}

TEST_F(CsvTest, RealLabelsStayReal) {
  dir_.Write("csv/a.csv", "x,y\n1,0.5\n2,3\n");
  EXPECT_EQ(ImportCsv(options_).value()["y"]["type"], "float32");
  EXPECT_THAT(Floats(dir_ / "out/a/train_y.npy"), ElementsAre(0.5, 3));
}

TEST_F(CsvTest, BadInputIsNamed) {
  struct Case {
    std::string content;
    const char* message;
    std::string label = "y";
    std::string one_hot = "";
  };
  const std::vector<Case> cases = {
      {"x,y\n1,0\n2\n", "a.csv:3: client a: has 1 columns, expected 2"},
      {"x,y\n1,0\n2,0,3\n", "a.csv:3: client a: has 3 columns, expected 2"},
      {"x,y\n1,0\nred,1\n", "a.csv:3: client a: column x is \"red\", not a number; use --one-hot"},
      {"x,y\ninf,1\n", "a.csv:2: client a: column x is \"inf\""},
      {"x,y\n1,-1\n", "a.csv: client a: label -1 of sample 0 is out of range"},
      {"x,y\n1,5\n", "a.csv: client a: label 5 of sample 0 is out of range"},
      {"x,y\n1,\"0\n", "a quoted cell does not end"},
      {"x,y\n?,1\n", "no client has a training sample"},
      {"", "holds no row"},
      {"x,y\n1,0\n", "a.csv: --label: there is no column z; the columns are x, y", "z"},
      {"x,y\n1,0\n", "--one-hot: column y is already used", "y", "y"}};
  for (const Case& bad : cases) {
    dir_.Write("csv/a.csv", bad.content);
    options_.label = bad.label;
    options_.one_hot =
        bad.one_hot.empty() ? std::vector<std::string>{} : std::vector<std::string>{bad.one_hot};
    options_.writer.classes = 5;
    EXPECT_THAT(std::string(ImportCsv(options_).status().message()), HasSubstr(bad.message));
    EXPECT_THAT(dir_.List(), ElementsAre("csv"));
  }
}

TEST_F(CsvTest, FilesWithOtherColumnsAreRefused) {
  dir_.Write("csv/a.csv", "x,y\n1,0\n");
  dir_.Write("csv/b.csv", "x,z,y\n1,2,0\n");
  EXPECT_THAT(std::string(ImportCsv(options_).status().message()),
              HasSubstr("b.csv: has 3 columns, or other names, than the first file (2)"));
}

TEST_F(CsvTest, TwoFilesForOneClientAreRefused) {
  dir_.Write("csv/a.csv", "x,y\n1,0\n");
  dir_.Write("csv/a.data", "x,y\n1,0\n");
  EXPECT_THAT(std::string(ImportCsv(options_).status().message()),
              HasSubstr("both name the client a; rename one, or use --client-column"));
}

TEST_F(CsvTest, NamesOfColumnsDoNotGoWithAHeader) {
  dir_.Write("csv/a.csv", "x,y\n1,0\n");
  options_.columns = {"x", "y"};
  EXPECT_THAT(std::string(ImportCsv(options_).status().message()), HasSubstr("add --no-header"));
}

}  // namespace
}  // namespace leeway
