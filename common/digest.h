// Hashes: sha256 names model files; XXH3 guards transfers.
#ifndef LEEWAY_COMMON_DIGEST_H_
#define LEEWAY_COMMON_DIGEST_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

struct evp_md_ctx_st;  // OpenSSL's

namespace leeway {

// Lower-case hexadecimal sha256.
std::string Sha256Hex(absl::string_view bytes);

// The same, of bytes that come one piece after the other.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void Add(absl::string_view bytes);
  std::string Hex();  // of all that was added; nothing may follow

 private:
  evp_md_ctx_st* const context_;
};

// XXH3, 64 bits. Not cryptographic.
uint64_t Xxh3(absl::string_view bytes);

}  // namespace leeway

#endif  // LEEWAY_COMMON_DIGEST_H_
