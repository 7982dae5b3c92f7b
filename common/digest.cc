#include "common/digest.h"

#include <openssl/evp.h>
// Inlined: the library is built for any x86-64, and hashes more slowly.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/escaping.h"

namespace leeway {

namespace {

// Fails only without memory or with a broken OpenSSL: there is no content address to go
// on with, and a made-up one would be worse.
void Must(bool worked) {
  if (worked) return;
  std::fprintf(stderr, "leeway: OpenSSL could not compute a sha256\n");
  std::abort();
}

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  // Looked up once: that takes longer than the hash of a small model.
  static const EVP_MD* const sha256 = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  Must(context_ != nullptr && EVP_DigestInit_ex(context_, sha256, nullptr) == 1);
}

Sha256::~Sha256() { EVP_MD_CTX_free(context_); }

void Sha256::Add(absl::string_view bytes) {
  Must(EVP_DigestUpdate(context_, bytes.data(), bytes.size()) == 1);
}

std::string Sha256::Hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  Must(EVP_DigestFinal_ex(context_, digest.data(), &size) == 1);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), size));
}

std::string Sha256Hex(absl::string_view bytes) {
  Sha256 hash;
  hash.Add(bytes);
  return hash.Hex();
}

uint64_t Xxh3(absl::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace leeway
