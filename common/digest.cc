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

std::string Sha256Hex(absl::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  // Looked up once: that takes longer than the hash of a small model.
  static const EVP_MD* const sha256 = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  // Fails only without memory or with a broken OpenSSL: there is no content
  // address to go on with, and a made-up one would be worse.
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, sha256, nullptr) != 1) {
    std::fprintf(stderr, "leeway: OpenSSL could not compute a sha256\n");
    std::abort();
  }
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), size));
}

uint64_t Xxh3(absl::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace leeway
