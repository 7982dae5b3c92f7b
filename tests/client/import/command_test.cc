#include "client/import/command.h"

#include <gmock/gmock.h>

#include <csignal>

#include "client/import/child.h"
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

TEST(CommandTest, ErrorsGoToStderrWithTheDocumentedExitCode) {
  TempDir dir;
  const Outcome outcome = RunData("import leaf /nowhere --out " + (dir / "out"));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, StartsWith("leeway: "));
  EXPECT_EQ(outcome.out, "");
}

TEST(CommandTest, Hdf5PrintsNothingOfItsOwn) {
  TempDir dir;
  const std::string file = dir.Write("bad.h5", "no HDF5");
  const Outcome outcome = RunData("import tff " + file + " --out " + (dir / "out"));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, StartsWith("leeway: " + file + ": "));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1);
}

TEST(CommandTest, UntrustedFilesHaveLimits) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need more address space than any limit";
#endif
  TempDir dir;
  std::string bomb(size_t{1} << 27, '1');  // one cell, 128 MiB
  const std::string file = dir.Write("bomb.csv.gz", Gzip("x,y\n" + bomb + ",0\n"));
  const Outcome refused = RunData("import csv " + file +
                                  " --label y --untrusted --max-memory 0.2 --out " + (dir / "out"));
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("memory ran out"));
  EXPECT_THAT(dir.List(), ElementsAre("bomb.csv.gz"));
  const std::string good = dir.Write("good.csv", "x,y\n1,0\n2,1\n");
  const Outcome fine =
      RunData("import csv " + good + " --label y --untrusted --out " + (dir / "out"));
  EXPECT_EQ(fine.exit_code, 0) << fine.err;
}

TEST(ChildTest, TheParentCleansUpAfterAnyEnd) {
  for (const int signal : {SIGSEGV, SIGKILL, SIGINT, SIGTERM}) {
    pid_t cleaned = 0;
    ::testing::internal::CaptureStderr();
    const int code = RunInChild(
        ChildLimits(),
        [signal] {
          std::signal(signal, SIG_DFL);  // a sanitizer may catch it
          return raise(signal);
        },
        [&cleaned](pid_t child) { cleaned = child; });
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_GT(cleaned, 0) << signal;
    const bool stopped = signal == SIGINT || signal == SIGTERM;
    EXPECT_EQ(code, stopped ? 128 + signal : 1);
    EXPECT_THAT(said, HasSubstr("nothing was written"));
  }
  const int code = RunInChild(
      ChildLimits(), [] { return 7; }, [](pid_t) { FAIL(); });
  EXPECT_EQ(code, 7);
}

}  // namespace
}  // namespace leeway
