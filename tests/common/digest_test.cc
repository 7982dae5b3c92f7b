#include "common/digest.h"

#include <gtest/gtest.h>

namespace leeway {
namespace {

TEST(DigestTest, Sha256MatchesFips180) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(DigestTest, Xxh3MatchesPublishedEmptyHash) { EXPECT_EQ(Xxh3(""), 0x2d06800538d394c2u); }

TEST(DigestTest, Xxh3SeesEveryBit) {
  std::string bytes(1000, 'x');
  const uint64_t before = Xxh3(bytes);
  for (char& byte : bytes) {
    byte = static_cast<char>(byte ^ 1);
    EXPECT_NE(Xxh3(bytes), before);
    byte = static_cast<char>(byte ^ 1);
  }
  EXPECT_EQ(Xxh3(bytes), before);
}

}  // namespace
}  // namespace leeway
