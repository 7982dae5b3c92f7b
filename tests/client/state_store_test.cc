#include "client/state_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

class StateStoreTest : public ::testing::Test {
 protected:
  StateStoreTest() : directory_(absl::StrCat(::testing::TempDir(), "/states_", ::getpid())) {}
  ~StateStoreTest() override { std::filesystem::remove_all(directory_); }

  // By another process, so to speak.
  std::string Read(uint64_t round, const std::string& run = "run", const std::string& who = "a/b") {
    const auto state = StateStore(directory_).Get(run, who, round);
    return state.ok() ? *state : std::string(state.status().message());
  }
  std::string File() {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_)) {
      if (entry.path().extension() == ".state") return entry.path();
    }
    return "";
  }

  const std::string directory_;
};

TEST_F(StateStoreTest, TheLastThatCountedAndTheLastComputedAreKept) {
  StateStore store(directory_);
  ASSERT_TRUE(store.Put("run", "a/b", {}, {3, "three"}).ok());
  ASSERT_TRUE(store.Flush().ok());
  EXPECT_EQ(Read(3), "three");
  ASSERT_TRUE(store.Put("run", "a/b", {3, "three"}, {7, "seven"}).ok());
  ASSERT_TRUE(store.Flush().ok());
  EXPECT_EQ(Read(3), "three");
  EXPECT_EQ(Read(7), "seven");
  // Round 7 did not count.
  ASSERT_TRUE(store.Put("run", "a/b", {3, "three"}, {8, ""}).ok());
  ASSERT_TRUE(store.Flush().ok());
  EXPECT_EQ(Read(3), "three");
  EXPECT_EQ(Read(8), "");
  EXPECT_THAT(Read(7), HasSubstr("after round 7 is not in"));
}

TEST_F(StateStoreTest, NothingChangesBeforeFlush) {
  StateStore store(directory_);
  ASSERT_TRUE(store.Put("run", "a/b", {}, {3, "three"}).ok());
  ASSERT_TRUE(store.Flush().ok());
  ASSERT_TRUE(store.Put("run", "a/b", {}, {4, "four"}).ok());
  EXPECT_EQ(Read(3), "three");
  EXPECT_THAT(Read(4), HasSubstr("--state directory that it had before"));
}

TEST_F(StateStoreTest, RunsAndClientsAreKeptApart) {
  StateStore store(directory_);
  ASSERT_TRUE(store.Put("run", "a/b", {}, {1, "mine"}).ok());
  ASSERT_TRUE(store.Put("../run", "a/b", {}, {1, "of another run"}).ok());
  ASSERT_TRUE(store.Put("run", "c", {}, {1, "of c"}).ok());
  ASSERT_TRUE(store.Flush().ok());
  EXPECT_EQ(Read(1), "mine");
  EXPECT_EQ(Read(1, "../run"), "of another run");
  EXPECT_EQ(Read(1, "run", "c"), "of c");
}

TEST_F(StateStoreTest, DamageIsNoticedAndAbsenceNamed) {
  EXPECT_THAT(Read(1), HasSubstr("which is not there"));
  EXPECT_FALSE(std::filesystem::exists(directory_));
  StateStore store(directory_);
  ASSERT_TRUE(store.Put("run", "a/b", {}, {1, "what is kept"}).ok());
  ASSERT_TRUE(store.Flush().ok());
  std::fstream file(File(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('X');
  file.close();
  EXPECT_THAT(Read(1), HasSubstr("damaged"));
  std::filesystem::resize_file(File(), 30);
  EXPECT_THAT(Read(1), HasSubstr("damaged"));
}

TEST_F(StateStoreTest, ADirectoryThatCannotBeMadeIsNamed) {
  std::ofstream(directory_) << "a file";
  const absl::Status status = StateStore(directory_).Put("run", "a", {}, {1, "x"});
  EXPECT_THAT(std::string(status.message()), HasSubstr("give another directory with --state"));
}

}  // namespace
}  // namespace leeway
