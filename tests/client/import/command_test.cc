#include "client/import/command.h"

#include <gmock/gmock.h>

#include "tests/client/import/test_files.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

Outcome RunData(const std::string& line) {
  CLI::App data("data");
  Outcome outcome;
  AddImportCommands(data, &outcome.exit_code);
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  data.parse(line);
  outcome.out = ::testing::internal::GetCapturedStdout();
  outcome.err = ::testing::internal::GetCapturedStderr();
  return outcome;
}

TEST(CommandTest, ImportPartitionDescribe) {
  TempDir dir;
  dir.Write("a.csv", "x,s,y\n1,m,0\n2,f,1\n3,f,0\n");
  dir.Write("b.csv", "x,s,y\n4,m,1\n5,m,1\n6,f,0\n");
  const Outcome import =
      RunData("import csv --one-hot s --drop-columns x --label y " + (dir / "a.csv") + " " +
              (dir / "b.csv") + " --out " + (dir / "out"));
  EXPECT_EQ(import.exit_code, 0) << import.err;
  EXPECT_THAT(import.out, HasSubstr("samples     6 train, 0 test"));
  EXPECT_THAT(Floats(dir / "out/a/train_x.npy"), ElementsAre(1, 0, 0));
  const Outcome split = RunData("partition " + (dir / "out") +
                                " --by iid --clients 3 --seed 9 --out " + (dir / "three"));
  EXPECT_EQ(split.exit_code, 0) << split.err;
  const Outcome table = RunData("describe " + (dir / "three"));
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_THAT(table.out, HasSubstr("clients     3"));
  const Outcome json = RunData("describe --json --check " + (dir / "three"));
  EXPECT_EQ(Json::parse(json.out)["options"]["seed"], 9);
}

TEST(CommandTest, ErrorsGoToStderrWithExitCodeOne) {
  const Outcome outcome = RunData("import leaf /nowhere --out /nowhere/out");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, StartsWith("leeway: "));
  EXPECT_EQ(outcome.out, "");
}

TEST(CommandTest, Hdf5PrintsNothingOfItsOwn) {
  TempDir dir;
  const std::string file = dir.Write("bad.h5", "no HDF5");
  const Outcome outcome = RunData("import tff " + file + " --out " + (dir / "out"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, StartsWith("leeway: " + file + ": "));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1);
}

}  // namespace
}  // namespace leeway
