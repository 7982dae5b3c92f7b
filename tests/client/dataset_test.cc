#include "client/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class DatasetTest : public ::testing::Test {
 protected:
  // A fresh directory for each test.
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = absl::StrCat(::testing::TempDir(), "/dataset_test_", ::getpid(), "_", info->name());
    Fresh();
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Fresh() {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(Directory());
  }
  std::string Directory() const { return root_ + "/client-7"; }

  template <typename T>
  void Write(const std::string& file, const std::vector<uint64_t>& shape,
             const std::vector<T>& values) {
    const absl::Status status = WriteNpy<T>(Directory() + "/" + file, shape, values);
    ASSERT_TRUE(status.ok()) << status;
  }

  void WriteGood() {
    Write<double>("train_x.npy", {3, 2}, {1, 2, 3, 4, 5, 6});
    Write<double>("train_y.npy", {3}, {1, 2, 3});
  }

  std::string root_;
};

TEST_F(DatasetTest, LoadsADirectoryAndNamesTheClientAfterIt) {
  WriteGood();
  for (const char* suffix : {"", "/", "//"}) {
    const auto data = Dataset::Load(Directory() + suffix);
    ASSERT_TRUE(data.ok()) << data.status();
    EXPECT_EQ(data->id, "client-7");
    EXPECT_FALSE(data->test.has_value());
    EXPECT_THAT(data->Schema().feature_shape(), ElementsAre(2));
    EXPECT_FALSE(data->Schema().labels());
    EXPECT_EQ(data->Hosted().id(), "client-7");
    EXPECT_EQ(data->Hosted().examples(), 3u);
    EXPECT_EQ(data->Hosted().test_examples(), 0u);
  }
}

TEST_F(DatasetTest, ImagesWithLabelsAndATestPart) {
  Write<uint8_t>("train_x.npy", {2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  Write<int64_t>("train_y.npy", {2, 1}, {0, 9});
  Write<float>("test_x.npy", {1, 2, 2}, {1, 2, 3, 4});
  Write<int32_t>("test_y.npy", {1}, {3});
  const auto data = Dataset::Load(Directory());
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->Schema().feature_shape(), ElementsAre(2, 2));
  EXPECT_TRUE(data->Schema().labels());
  EXPECT_EQ(data->Hosted().test_examples(), 1u);
}

TEST_F(DatasetTest, ADigestIsOfTheDataAlone) {
  const auto digest = [this] { return Dataset::Load(Directory())->Hosted().digest(); };
  WriteGood();
  const uint64_t before = digest();
  EXPECT_NE(before, 0u);
  WriteGood();
  EXPECT_EQ(digest(), before);
  Write<double>("train_y.npy", {3}, {1, 2, 3.5});  // of the same size
  const uint64_t other_target = digest();
  EXPECT_NE(other_target, before);
  Write<double>("train_y.npy", {3}, {1, 2, 3});
  Write<double>("test_x.npy", {1, 2}, {1, 2});
  Write<double>("test_y.npy", {1}, {1});
  EXPECT_NE(digest(), before);
  EXPECT_NE(digest(), other_target);
}

TEST_F(DatasetTest, OneNumberPerExampleIsAFeatureOfNoShape) {
  Write<double>("train_x.npy", {3}, {1, 2, 3});
  Write<double>("train_y.npy", {3}, {1, 2, 3});
  const auto data = Dataset::Load(Directory());
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->Schema().feature_shape_size(), 0);
}

TEST_F(DatasetTest, MissingDirectoryAndFilesAreNamed) {
  const auto nowhere = Dataset::Load(root_ + "/none");
  EXPECT_EQ(nowhere.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(nowhere.status().message(), HasSubstr(root_ + "/none: no such directory"));
  const auto empty = Dataset::Load(Directory());
  EXPECT_EQ(empty.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(empty.status().message(), HasSubstr("client-7/train_x.npy: no such file"));
  WriteGood();
  EXPECT_THAT(Dataset::Load(Directory() + "/train_x.npy").status().message(),
              HasSubstr("not a directory"));
  Write<double>("test_x.npy", {1, 2}, {1, 2});
  EXPECT_THAT(Dataset::Load(Directory()).status().message(), HasSubstr("client-7/test_y.npy"));
}

TEST_F(DatasetTest, RefusesWhatDoesNotFitNamingTheFile) {
  const struct {
    std::string what;
    std::function<void()> spoil;
    std::string file;
    std::string message;
  } cases[] = {
      {"scalar x", [&] { Write<double>("train_x.npy", {}, {1}); }, "train_x.npy", "one row per"},
      {"other rows",
       [&] {
         Write<double>("train_y.npy", {2}, {1, 2});
       },
       "train_y.npy", "2 rows, expected 3"},
      {"wide y",
       [&] {
         Write<double>("train_y.npy", {3, 2}, {1, 2, 3, 4, 5, 6});
       },
       "train_y.npy", "(3, 2)"},
      {"no features",
       [&] {
         Write<double>("train_x.npy", {3, 0}, {});
       },
       "train_x.npy", "at least one feature"},
      {"no examples",
       [&] {
         Write<double>("train_x.npy", {0, 2}, {});
         Write<double>("train_y.npy", {0}, {});
       },
       "train_x.npy", "at least one"},
      {"nan in x",
       [&] {
         Write<double>("train_x.npy", {3, 2}, {1, 2, 3, 4, 5, kNan});
       },
       "train_x.npy", "row 2 "},
      {"inf in y",
       [&] {
         Write<float>("train_y.npy", {3}, {1, kInf, kInf});
       },
       "train_y.npy", "row 1 "},
      {"test of other shape",
       [&] {
         Write<double>("test_x.npy", {1, 3}, {1, 2, 3});
         Write<double>("test_y.npy", {1}, {1});
       },
       "test_x.npy", "(1, 3)"},
      {"corrupt", [&] { std::ofstream(Directory() + "/train_y.npy") << "1,2,3"; }, "train_y.npy",
       "numpy.save"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    Fresh();
    WriteGood();
    c.spoil();
    const auto data = Dataset::Load(Directory());
    EXPECT_EQ(data.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(data.status().message(), HasSubstr("client-7/" + c.file));
    EXPECT_THAT(data.status().message(), HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace leeway
