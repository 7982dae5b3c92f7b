#include "common/running_digest.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/escaping.h"

namespace leeway {
namespace {

using Digest = std::array<unsigned char, EVP_MAX_MD_SIZE>;

// Fails only without memory or with a broken OpenSSL; a made-up digest would be worse.
void Must(bool worked) {
  if (worked) return;
  std::fprintf(stderr, "leeway: OpenSSL could not compute a digest\n");
  std::abort();
}

std::string HexOf(const Digest& digest, unsigned int size) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), size));
}

}  // namespace

RunningDigest::RunningDigest() : context_(EVP_MD_CTX_new()) {
  Must(context_ != nullptr && EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) == 1);
}

RunningDigest::~RunningDigest() { EVP_MD_CTX_free(context_); }

void RunningDigest::Add(absl::string_view bytes) {
  Must(EVP_DigestUpdate(context_, bytes.data(), bytes.size()) == 1);
}

std::string RunningDigest::Hex() const {
  RunningDigest copy;
  Must(EVP_MD_CTX_copy_ex(copy.context_, context_) == 1);
  Digest digest;
  unsigned int size = 0;
  Must(EVP_DigestFinal_ex(copy.context_, digest.data(), &size) == 1);
  return HexOf(digest, size);
}

std::string HmacSha256Hex(absl::string_view key, absl::string_view bytes) {
  Digest digest;
  unsigned int size = 0;
  Must(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
            reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data(),
            &size) != nullptr);
  return HexOf(digest, size);
}

}  // namespace leeway
