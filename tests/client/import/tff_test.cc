#include <gmock/gmock.h>

#include <fstream>

#include "client/import/byte_stream.h"
#include "client/import/importers.h"
#include "tests/client/import/test_files.h"

namespace leeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TffTest : public ::testing::Test {
 protected:
  TffTest() {
    options_.source = dir_ / "train.h5";
    options_.writer.out = dir_ / "out";
    options_.sequences.length = 4;
  }
  TempDir dir_;
  TffOptions options_;
};

TEST_F(TffTest, PixelsAndLabelsKeepTheirShape) {
  {
    Hdf5Builder file(options_.source);
    file.Floats("f0", "pixels", {2, 1, 2}, {1, 0.5, 0.25, 0});
    file.Integers("f0", "label", {2}, {3, 1});
    file.Floats("f1", "pixels", {1, 1, 2}, {7, 8});
    file.Integers("f1", "label", {1}, {0});
    file.Floats("empty", "pixels", {0, 1, 2}, {});
    file.Integers("empty", "label", {0}, {});
    Hdf5Builder test(dir_ / "test.h5");
    test.Floats("f0", "pixels", {1, 1, 2}, {9, 9});
    test.Integers("f0", "label", {1}, {2});
  }
  options_.test = dir_ / "test.h5";
  const Json json = ImportTff(options_).value();
  EXPECT_EQ(json["clients"], 2);
  EXPECT_EQ(json["skipped"]["clients_without_samples"], 1);
  EXPECT_THAT(Shape(dir_ / "out/f0/train_x.npy"), ElementsAre(2, 1, 2));
  EXPECT_THAT(Floats(dir_ / "out/f0/train_x.npy"), ElementsAre(1, 0.5, 0.25, 0));
  EXPECT_THAT(Integers(dir_ / "out/f0/train_y.npy"), ElementsAre(3, 1));
  EXPECT_THAT(Floats(dir_ / "out/f0/test_x.npy"), ElementsAre(9, 9));
}

TEST_F(TffTest, BytesAreScaledToOne) {
  {
    Hdf5Builder file(options_.source);
    file.Integers("a", "image", {1, 2}, {0, 255});
    file.Integers("a", "label", {1, 1}, {4});
  }
  ASSERT_TRUE(ImportTff(options_).ok());
  EXPECT_THAT(Floats(dir_ / "out/a/train_x.npy"), ElementsAre(0, 1));
}

// "aab" twice and "b": a and b are equally frequent (4, 3), so a is 1 and b is 2;
// UNK 3, BOS 4, EOS 5.
TEST_F(TffTest, SnippetsBecomeShiftedPaddedSequences) {
  for (bool fixed : {true, false}) {
    TempDir dir;
    options_.source = dir / "train.h5";
    options_.test = dir / "test.h5";
    options_.writer.out = dir / "out";
    {
      Hdf5Builder file(options_.source);
      Hdf5Builder test(options_.test);
      const auto add = [fixed](Hdf5Builder& to, const std::string& client,
                               const std::vector<std::string>& texts) {
        fixed ? to.FixedStrings(client, "snippets", texts)
              : to.VariableStrings(client, "snippets", texts);
      };
      add(file, "LEAR", {"aab", "", "b"});
      add(file, "FOOL", {"aab"});
      add(file, "MUTE", {"", ""});
      add(test, "LEAR", {"abcab"});
      add(test, "MUTE", {""});
    }
    const Json json = ImportTff(options_).value();
    EXPECT_EQ(json["clients"], 2);
    EXPECT_EQ(json["texts"], (Json{{"train", 6}, {"test", 2}}));
    EXPECT_EQ(json["skipped"]["clients_without_text"], 1);
    EXPECT_EQ(json["vocabulary"]["size"], 6);
    EXPECT_EQ(json["vocabulary"]["unknown_tokens"]["test"], 1);
    EXPECT_EQ(ReadAll(dir / "out/vocabulary.txt").value(), "<pad>\na\nb\n<unk>\n<bos>\n<eos>\n");
    EXPECT_THAT(Shape(dir / "out/LEAR/train_x.npy"), ElementsAre(2, 4));
    EXPECT_THAT(Integers(dir / "out/LEAR/train_x.npy"), ElementsAre(4, 1, 1, 2, 4, 2, 0, 0));
    EXPECT_THAT(Integers(dir / "out/LEAR/train_y.npy"), ElementsAre(1, 1, 2, 5, 2, 5, 0, 0));
    // BOS a b UNK a b EOS in rows of four: each token is a target once.
    EXPECT_THAT(Integers(dir / "out/LEAR/test_x.npy"), ElementsAre(4, 1, 2, 3, 1, 2, 0, 0));
    EXPECT_THAT(Integers(dir / "out/LEAR/test_y.npy"), ElementsAre(1, 2, 3, 1, 2, 5, 0, 0));
  }
}

TEST_F(TffTest, TokensAreWordsAndLongTextsCanBeCut) {
  {
    Hdf5Builder file(options_.source);
    file.VariableStrings("u", "tokens", {"the cat saw the dog and left", "the end"});
  }
  options_.sequences.split = false;
  options_.sequences.vocabulary = 1;
  const Json json = ImportTff(options_).value();
  EXPECT_EQ(json["vocabulary"]["truncated_texts"], 1);
  EXPECT_THAT(Integers(dir_ / "out/u/train_y.npy"), ElementsAre(1, 2, 2, 1, 1, 2, 4, 0));
}

TEST_F(TffTest, BadFilesAreNamed) {
  dir_.Write("train.h5", "not HDF5");
  EXPECT_THAT(ImportTff(options_).status().message(), HasSubstr("train.h5: "));
  { Hdf5Builder file(options_.source); }
  EXPECT_THAT(ImportTff(options_).status().message(), HasSubstr("/examples holds no client"));
  {
    Hdf5Builder file(options_.source);
    file.Floats("a", "pixels", {1, 2}, {1, 2});
  }
  EXPECT_THAT(ImportTff(options_).status().message(),
              HasSubstr("train.h5: client a: has none of label, y; it has pixels"));
  {
    Hdf5Builder file(options_.source);
    file.Floats("a", "pixels", {1, 2}, {1, 2});
    file.Integers("a", "label", {1}, {0});
    file.Floats("b", "pixels", {2, 2}, {1, 2, 3, 4});
    file.Integers("b", "label", {1}, {0});
  }
  EXPECT_THAT(ImportTff(options_).status().message(),
              HasSubstr("train.h5: client b: x has 2 samples, y has 1"));
  {
    Hdf5Builder file(options_.source);
    file.FixedStrings("a", "snippets", {"text"});
    file.Integers("b", "snippets", {1}, {1});
  }
  EXPECT_THAT(ImportTff(options_).status().message(),
              HasSubstr("train.h5: client b: snippets: expected strings"));
  EXPECT_THAT(dir_.List(), ElementsAre("train.h5"));
}

// Every cut and every flipped byte either fails, by name, or still gives a whole
// federation; nothing crashes and nothing is left half-written.
TEST_F(TffTest, DamagedFilesNeverCrash) {
  {
    Hdf5Builder file(options_.source);
    file.FixedStrings("LEAR", "snippets", {"blow winds and crack your cheeks", "rage", "blow"});
    file.FixedStrings("FOOL", "snippets", {"o nuncle", ""});
  }
  const std::string good = ReadAll(options_.source).value();
  int failed = 0;
  for (size_t i = 0; i < good.size(); i += 7) {
    std::string bytes = good;
    if (i % 2 == 0) {
      bytes.resize(i);
    } else {
      bytes[i] = static_cast<char>(bytes[i] ^ 0xff);
    }
    TempDir dir;
    TffOptions options = options_;
    options.source = dir.Write("bad.h5", bytes);
    options.writer.out = dir / "out";
    const absl::StatusOr<Json> json = ImportTff(options);
    if (json.ok()) continue;
    ++failed;
    EXPECT_THAT(std::string(json.status().message()), HasSubstr("bad.h5"));
    EXPECT_THAT(dir.List(), ElementsAre("bad.h5"));
  }
  EXPECT_GT(failed, 100);
}

}  // namespace
}  // namespace leeway
