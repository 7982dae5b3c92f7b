#include "cli/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace leeway {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DealTest, SharesAreEvenAndInOrder) {
  const std::vector<std::string> clients = {"a", "b", "c", "d", "e", "f", "g"};
  EXPECT_THAT(Deal(clients, 3), ElementsAre(ElementsAre("a", "b", "c"), ElementsAre("d", "e"),
                                            ElementsAre("f", "g")));
  EXPECT_EQ(Deal(clients, 1).size(), 1u);
  EXPECT_EQ(Deal(clients, 7).size(), 7u);
  EXPECT_EQ(Deal(clients, 100).size(), 7u);
}

TEST(DealTest, EveryClientIsDealtOnce) {
  for (size_t count = 1; count <= 20; ++count) {
    std::vector<std::string> clients;
    for (size_t i = 0; i < count; ++i) clients.push_back(std::to_string(i));
    for (uint32_t processes = 1; processes <= 20; ++processes) {
      std::vector<std::string> dealt;
      for (const auto& share : Deal(clients, processes)) {
        EXPECT_FALSE(share.empty());
        dealt.insert(dealt.end(), share.begin(), share.end());
      }
      EXPECT_EQ(dealt, clients);
    }
  }
}

TEST(DefaultProcessesTest, OnePerClientWhileTheyAreFew) {
  EXPECT_EQ(DefaultProcesses(1, 2), 1u);
  EXPECT_EQ(DefaultProcesses(100, 2), 100u);
  EXPECT_EQ(DefaultProcesses(101, 2), 4u);
  EXPECT_EQ(DefaultProcesses(101, 0), 2u);  // cores unknown
}

TEST(ClientDirectoriesTest, FindsDirectoriesWithData) {
  std::string pattern = testing::TempDir() + "/run_test.XXXXXX";
  const std::string data = mkdtemp(pattern.data());
  for (const char* name : {"zoe", "adam", "empty"}) fs::create_directory(data + "/" + name);
  std::ofstream(data + "/zoe/train_x.npy") << "x";
  std::ofstream(data + "/adam/train_x.npy") << "x";
  std::ofstream(data + "/truth.npy") << "x";
  EXPECT_THAT(ClientDirectories(data).value(), ElementsAre(data + "/adam", data + "/zoe"));

  const absl::Status none = ClientDirectories(data + "/empty").status();
  EXPECT_TRUE(absl::IsNotFound(none));
  EXPECT_THAT(std::string(none.message()), HasSubstr("leeway data synthetic"));
  const absl::Status missing = ClientDirectories(data + "/missing").status();
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_THAT(std::string(missing.message()), HasSubstr("--data"));
  fs::remove_all(data);
}

}  // namespace
}  // namespace leeway
