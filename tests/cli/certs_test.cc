#include "cli/certs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/time/clock.h"
#include "common/rng.h"

namespace leeway {
namespace {

using ::testing::HasSubstr;

class CertsTest : public ::testing::Test {
 protected:
  CertsTest()
      : directory_(std::filesystem::temp_directory_path() /
                   ("leeway-certs-test-" + std::to_string(getpid()))) {
    std::filesystem::remove_all(directory_);
    EXPECT_TRUE(MakeAuthority(directory_, "test", 30).ok());
  }
  ~CertsTest() override { std::filesystem::remove_all(directory_); }

  static IssueOptions Client(const std::string& name, std::vector<Grant> grants) {
    IssueOptions options;
    options.name = name;
    options.grants = std::move(grants);
    return options;
  }
  static mode_t Mode(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 0777;
  }
  X509Ptr Load(const std::string& name) const {
    return *ParseCertificate(*ReadTextFile(directory_ + "/" + name + ".crt"));
  }

  const std::string directory_;
};

TEST(GrantUriTest, EveryGrantComesBackFromItsUri) {
  Rng rng(7, 0, 0, Purpose::kBatchOrder);
  for (int i = 0; i < 1000; ++i) {
    Grant grant;
    const uint64_t length = rng.Below(20);
    for (uint64_t k = 0; k < length; ++k) grant.client.push_back(static_cast<char>(rng.Below(256)));
    grant.examples = rng.Below(3) == 0 ? 0 : rng.Below(1'000'000) + 1;
    grant.evaluator = rng.Below(2) == 0;
    EXPECT_EQ(ParseGrantUri(GrantUri(grant)), grant) << GrantUri(grant);
  }
  EXPECT_EQ(GrantUri({"a b", 12}), "leeway:client/a%20b?examples=12");
  EXPECT_EQ(GrantUri({"", 0}), "leeway:client/*");
  EXPECT_EQ(GrantUri({"a", 5, true}), "leeway:evaluator/a?examples=5");
  for (const char* bad : {"leeway:client/", "leeway:client/a?examples=0", "leeway:client/a?x=1",
                          "leeway:client/%4", "leeway:client/%zz", "https://x/", ""}) {
    EXPECT_EQ(ParseGrantUri(bad), std::nullopt) << bad;
  }
}

TEST_F(CertsTest, ACertificateSaysWhoseItIs) {
  const absl::Time before = absl::Now();
  ASSERT_TRUE(Issue(directory_, Client("a", {{"alice", 100}, {"bob/ü", 0}})).ok());
  const absl::Time after = absl::Now();
  const X509Ptr certificate = Load("a");
  const Certificate what = Describe(certificate.get());
  EXPECT_EQ(what.name, "a");
  EXPECT_EQ(what.grants, (std::vector<Grant>{{"alice", 100}, {"bob/ü", 0}}));
  const absl::Duration year = absl::Hours(24 * 365);
  EXPECT_GE(what.not_after, before + year - absl::Seconds(1));  // it has whole seconds
  EXPECT_LE(what.not_after, after + year);
  EXPECT_EQ(X509_verify(certificate.get(), X509_get0_pubkey(Load("ca").get())), 1);
  EXPECT_EQ(X509_check_ca(certificate.get()), 0);
}

TEST_F(CertsTest, OnlyTheOwnerCanReadKeys) {
  ASSERT_TRUE(Issue(directory_, Client("a", {{"alice", 0}})).ok());
  EXPECT_EQ(Mode(directory_), 0700u);
  EXPECT_EQ(Mode(directory_ + "/ca.key"), 0600u);
  EXPECT_EQ(Mode(directory_ + "/a.key"), 0600u);
}

TEST_F(CertsTest, RevokingNamesTheOldCertificateAndNotItsSuccessor) {
  ASSERT_TRUE(Issue(directory_, Client("a", {{"alice", 0}})).ok());
  ASSERT_TRUE(Issue(directory_, Client("b", {{"bob", 0}})).ok());
  const absl::StatusOr<size_t> revoked = Revoke(directory_, "a");
  ASSERT_TRUE(revoked.ok()) << revoked.status();
  EXPECT_EQ(*revoked, 1u);
  IssueOptions again = Client("a", {{"alice", 0}});
  EXPECT_EQ(Issue(directory_, again).code(), absl::StatusCode::kAlreadyExists);
  again.renew = true;
  ASSERT_TRUE(Issue(directory_, again).ok());
  const auto list = ListIssued(directory_);
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->size(), 3u);
  const std::string now = Describe(Load("a").get()).serial;
  for (const IssuedCertificate& issued : *list) {
    EXPECT_EQ(issued.revoked, issued.certificate.name == "a" && issued.certificate.serial != now);
  }
  EXPECT_EQ(Revoke(directory_, "nobody").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CertsTest, AListOfAnotherAuthorityIsRefused) {
  const std::string other = directory_ + "/other";
  ASSERT_TRUE(MakeAuthority(other, "other", 30).ok());
  const auto revoked = ParseRevoked(*ReadTextFile(other + "/revoked.crl"), Load("ca").get());
  EXPECT_THAT(std::string(revoked.status().message()), HasSubstr("not signed by the authority"));
}

TEST_F(CertsTest, WrongFilesAreNamedBeforeAnyHandshake) {
  ASSERT_TRUE(Issue(directory_, Client("a", {{"alice", 0}})).ok());
  ASSERT_TRUE(Issue(directory_, Client("b", {{"bob", 0}})).ok());
  const std::string other = directory_ + "/other";
  ASSERT_TRUE(MakeAuthority(other, "other", 30).ok());
  const auto refusal = [](const TlsFiles& files) {
    return std::string(ChannelCredentials(files, "fl.example.org:1", false).status().message());
  };
  TlsFiles files = FilesOf(directory_, "a");
  EXPECT_EQ(refusal(files), "");
  files.key = directory_ + "/b.key";
  EXPECT_THAT(refusal(files), HasSubstr("not the private key"));
  files = FilesOf(directory_, "a");
  files.ca = other + "/ca.crt";
  EXPECT_THAT(refusal(files), HasSubstr("not made by the authority"));
  files.ca = directory_ + "/none.crt";
  EXPECT_THAT(refusal(files), HasSubstr("none.crt"));
  files.ca.clear();
  EXPECT_THAT(refusal(files), HasSubstr("together"));
  EXPECT_THAT(refusal({}), HasSubstr("--insecure-anywhere"));
}

TEST_F(CertsTest, WrongNamesAreRefused) {
  for (const char* name : {"", "ca", "../x", "a/b", ".hidden", "a b"}) {
    EXPECT_EQ(Issue(directory_, Client(name, {{"a", 0}})).code(),
              absl::StatusCode::kInvalidArgument)
        << name;
  }
}

TEST(LocalAddressTest, OnlyThisMachineIsLocal) {
  for (const char* local : {"127.0.0.1:1", "localhost:4760", "[::1]:80", "unix:/tmp/s",
                            "127.9.9.9:0", "ipv4:127.0.0.1:5"}) {
    EXPECT_TRUE(IsLocalAddress(local)) << local;
  }
  for (const char* remote : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "fl.example.org:1", ":4760",
                             "localhost.example.org:1", "*:4"}) {
    EXPECT_FALSE(IsLocalAddress(remote)) << remote;
  }
}

}  // namespace
}  // namespace leeway
