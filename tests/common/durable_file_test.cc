// kill -9 cannot show that a sync is missing, because the page cache survives it.
// So the order of the system calls is checked: these definitions stand before
// the C library's.
#include "common/durable_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <climits>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

namespace {

std::vector<std::string>& Calls() {
  static std::vector<std::string> calls;
  return calls;
}

std::string NameOf(int fd) {
  char path[PATH_MAX] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t size = readlink(link.c_str(), path, sizeof path - 1);
  return size < 0 ? "?" : std::filesystem::path(path).filename().string();
}

}  // namespace

extern "C" int fsync(int fd) {
  Calls().push_back("sync " + NameOf(fd));
  return static_cast<int>(syscall(SYS_fsync, fd));
}

extern "C" int rename(const char* from, const char* to) noexcept {
  Calls().push_back("rename to " + std::filesystem::path(to).filename().string());
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

namespace leeway {
namespace {

using ::testing::ElementsAre;

class DurableFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() / "leeway-durable-test";
    directory_ += std::to_string(getpid());
    std::filesystem::create_directories(directory_ / "models");
    Calls().clear();
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::filesystem::path directory_;
};

TEST_F(DurableFileTest, AFileIsSyncedThenRenamedThenItsDirectoryIsSynced) {
  const std::string path = directory_ / "models" / "x";
  ASSERT_TRUE(WriteFile(path, "bytes", true).ok());
  EXPECT_THAT(Calls(), ElementsAre("sync x.tmp", "rename to x", "sync models"));
  std::ifstream in(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "bytes");
}

TEST_F(DurableFileTest, ASecondNameIsDurableToo) {
  const std::string path = directory_ / "models" / "x";
  ASSERT_TRUE(WriteFile(path, "bytes", true).ok());
  Calls().clear();
  ASSERT_TRUE(LinkFile(path, directory_ / "models" / "y", true).ok());
  EXPECT_THAT(Calls(), ElementsAre("rename to y", "sync models"));
}

}  // namespace
}  // namespace leeway
