#include "cli/spawn.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace leeway {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class ChildrenTest : public testing::Test {
 protected:
  ChildrenTest() {
    std::string pattern = testing::TempDir() + "/spawn_test.XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~ChildrenTest() override { fs::remove_all(directory_); }

  std::string Log(const std::string& name) const { return directory_ + "/" + name + ".log"; }

  void StartShell(const std::string& name, const std::string& script) {
    const absl::Status status = children_.Start(name, {"/bin/sh", "-c", script}, Log(name));
    ASSERT_TRUE(status.ok()) << status;
  }

  std::vector<ChildExit> AwaitExits(size_t count) {
    std::vector<ChildExit> exits;
    while (exits.size() < count) {
      for (ChildExit& exit : children_.Reap()) exits.push_back(std::move(exit));
      if (exits.size() < count) signals_.Wait(absl::Seconds(10));
    }
    return exits;
  }

  // Waits (on the file, not on time) until the child has got somewhere.
  void AwaitText(const std::string& name, const std::string& text) {
    const absl::Time deadline = absl::Now() + absl::Seconds(300);
    while (LastLines(Log(name), 100).find(text) == std::string::npos) {
      ASSERT_LT(absl::Now(), deadline);
      signals_.Wait(absl::Milliseconds(1));
    }
  }

  static void ExpectNoChildLeft() {
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD);
  }

  std::string directory_;
  Signals signals_;
  Children children_{&signals_};
};

TEST_F(ChildrenTest, ADeadChildIsReportedWithItsLastLines) {
  StartShell("client_03", "for i in $(seq 50); do echo line $i; done; echo broken >&2; exit 3");
  const std::vector<ChildExit> exits = AwaitExits(1);
  EXPECT_FALSE(exits[0].ok());
  EXPECT_EQ(exits[0].Describe(), "client_03 exited with code 3");
  const std::string report = exits[0].Report();
  EXPECT_THAT(report, HasSubstr("    line 50\n    broken"));
  EXPECT_THAT(report, HasSubstr(Log("client_03")));
  EXPECT_THAT(report, Not(HasSubstr("line 30")));
  EXPECT_EQ(children_.running(), 0u);
  ExpectNoChildLeft();
}

TEST_F(ChildrenTest, ASignalIsNamed) {
  StartShell("server", "kill -KILL $$");
  const std::vector<ChildExit> exits = AwaitExits(1);
  EXPECT_EQ(exits[0].Describe(), "server was killed by SIGKILL");
  EXPECT_THAT(exits[0].Report(), HasSubstr("is empty"));
}

TEST_F(ChildrenTest, ManyEndAndAllAreReaped) {
  for (int i = 0; i < 30; ++i) StartShell(absl::StrCat("c", i), "exit 0");
  for (const ChildExit& exit : AwaitExits(30)) EXPECT_TRUE(exit.ok());
  ExpectNoChildLeft();
}

TEST_F(ChildrenTest, StopEndsThePolite) {
  StartShell("polite",
             "trap 'echo bye; exit 0' TERM; echo ready; while :; do read x || sleep 1; done");
  AwaitText("polite", "ready");
  children_.Stop(absl::Seconds(300));
  EXPECT_THAT(LastLines(Log("polite"), 1), HasSubstr("bye"));
  ExpectNoChildLeft();
}

TEST_F(ChildrenTest, StopKillsTheStubborn) {
  StartShell("stubborn", "trap '' TERM; echo ready; while :; do sleep 0.05; done");
  AwaitText("stubborn", "ready");
  children_.Stop(absl::Milliseconds(50));
  EXPECT_EQ(children_.running(), 0u);
  ExpectNoChildLeft();
}

TEST_F(ChildrenTest, ChildrenDoNotOutliveTheirOwner) {
  {
    Children children(&signals_);
    ASSERT_TRUE(children.Start("sleeper", {"/bin/sleep", "1000"}, Log("sleeper")).ok());
  }
  ExpectNoChildLeft();
}

TEST_F(ChildrenTest, StdinEndsWhenTheLauncherIsGone) {
  const pid_t launcher = fork();
  if (launcher == 0) {
    Children children(&signals_);
    const absl::Status started = children.Start(
        "orphan", {"/bin/sh", "-c", "echo ready; cat; echo the launcher is gone"}, Log("orphan"));
    if (!started.ok()) _exit(1);
    AwaitText("orphan", "ready");
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
  AwaitText("orphan", "the launcher is gone");
}

TEST_F(ChildrenTest, AMissingProgramIsNamed) {
  const absl::Status status = children_.Start("ghost", {"/no/such/program"}, Log("ghost"));
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("/no/such/program"));
  EXPECT_EQ(children_.running(), 0u);
}

TEST_F(ChildrenTest, ChildrenHaveOnlyTheirOwnFiles) {
  const int open_here = open("/proc/self/status", O_RDONLY);  // would be inherited
  ASSERT_GE(open_here, 0);
  StartShell("nosy", absl::StrCat("if [ -e /proc/$$/fd/", open_here,
                                  " ]; then echo leaked; else echo closed; fi"));
  AwaitExits(1);
  EXPECT_EQ(LastLines(Log("nosy"), 1), "    closed");
  close(open_here);
}

TEST_F(ChildrenTest, SignalsComeThroughTheDescriptor) {
  EXPECT_EQ(signals_.Take(), 0);
  kill(getpid(), SIGINT);
  EXPECT_EQ(signals_.Wait(absl::Seconds(10)), SIGINT);
  EXPECT_EQ(signals_.Take(), 0);
}

TEST(LastLinesTest, TakesTheEndOfLongFiles) {
  const std::string path = absl::StrCat(testing::TempDir(), "/last_lines.", getpid(), ".log");
  {
    std::ofstream file(path);
    for (int i = 0; i < 100000; ++i) file << "line " << i << "\n";
  }
  EXPECT_EQ(LastLines(path, 2), "    line 99998\n    line 99999");
  EXPECT_EQ(LastLines(path + ".none", 2), "");
  fs::remove(path);
}

TEST(ProgramBesideTest, FindsItsOwnFolder) {
  EXPECT_TRUE(ProgramBeside(fs::read_symlink("/proc/self/exe").filename()).ok());
  EXPECT_TRUE(absl::IsNotFound(ProgramBeside("no-such-program").status()));
}

}  // namespace
}  // namespace leeway
