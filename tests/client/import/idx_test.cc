#include <gmock/gmock.h>

#include <filesystem>

#include "client/import/importers.h"
#include "tests/client/import/test_files.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class IdxTest : public ::testing::Test {
 protected:
  absl::Status Import(const std::string& images, const std::string& labels) {
    options_.images = dir_.Write("images", images);
    options_.labels = dir_.Write("labels", labels);
    options_.writer.out = dir_ / "out";
    return ImportIdx(options_).status();
  }
  TempDir dir_;
  IdxOptions options_;
};

TEST_F(IdxTest, ImagesBecomeOneClient) {
  options_.test_images = dir_.Write("ti", Idx({1, 1, 2}, {0, 51}));
  options_.test_labels = dir_.Write("tl", Idx({1}, {1}));
  ASSERT_TRUE(Import(Gzip(Idx({2, 1, 2}, {0, 255, 51, 102})), Idx({2}, {9, 0})).ok());
  EXPECT_THAT(Shape(dir_ / "out/all/train_x.npy"), ElementsAre(2, 1, 2));
  EXPECT_THAT(Floats(dir_ / "out/all/train_x.npy"), ElementsAre(0, 1, 51 / 255.0F, 102 / 255.0F));
  EXPECT_THAT(Integers(dir_ / "out/all/train_y.npy"), ElementsAre(9, 0));
  EXPECT_THAT(Integers(dir_ / "out/all/test_y.npy"), ElementsAre(1));
}

TEST_F(IdxTest, BadFilesAreNamed) {
  const std::string images = Idx({2, 1, 2}, {0, 1, 2, 3});
  const std::string labels = Idx({2}, {0, 1});
  options_.writer.classes = 10;
  const std::vector<std::tuple<std::string, std::string, const char*>> cases = {
      {images.substr(0, images.size() - 1), labels, "images: ends before the 2 items"},
      {images.substr(0, 6), labels, "images: ends before"},
      {images + "x", labels, "images: goes on after the 2 items"},
      {images, labels + "x", "labels: goes on after"},
      {images, Idx({3}, {0, 1, 2}), "has 2 images, but"},
      {images, Idx({2}, {0, 10}), "labels: client all: label 10 of sample 1 is out of range"},
      {labels, labels, "images: has type 8 in 1 dimensions"},
      {"PNG!", labels, "images: is not an IDX file"},
      {Idx({1, 4000000000U, 4000000000U}, {}), labels, "images: dimension 1 is 4000000000"},
      {Idx({4000000000U, 2, 2}, {}), labels, "has 4000000000 images, but"},
      {Gzip(images).substr(0, 20), labels, "images: the gzip data end too early"},
      {Idx({0, 1, 2}, {}), Idx({0}, {}), "no client has a training sample"}};
  for (const auto& [bad_images, bad_labels, message] : cases) {
    EXPECT_THAT(std::string(Import(bad_images, bad_labels).message()), HasSubstr(message));
    EXPECT_THAT(dir_.List(), ElementsAre("images", "labels"));
  }
}

TEST_F(IdxTest, FashionMnistOfDebianHas70000Images) {
  const std::string root = "/usr/share/datasets/fashion-mnist/";
  if (!std::filesystem::exists(root)) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  options_.images = root + "train-images-idx3-ubyte.gz";
  options_.labels = root + "train-labels-idx1-ubyte.gz";
  options_.test_images = root + "t10k-images-idx3-ubyte.gz";
  options_.test_labels = root + "t10k-labels-idx1-ubyte.gz";
  options_.writer.out = dir_ / "out";
  const Json json = ImportIdx(options_).value();
  EXPECT_EQ(json["samples"], (Json{{"train", 60000}, {"test", 10000}}));
  EXPECT_EQ(json["label_histogram"]["train"]["7"], 6000);
}

}  // namespace
}  // namespace leeway
