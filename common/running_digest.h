// Digests of what grows: sha256 of all bytes so far, and a digest that only the holder of a key can
// make.
#ifndef LEEWAY_COMMON_RUNNING_DIGEST_H_
#define LEEWAY_COMMON_RUNNING_DIGEST_H_

#include <string>

#include "absl/strings/string_view.h"

struct evp_md_ctx_st;  // OpenSSL's

namespace leeway {

// sha256 of bytes that come one piece after the other, at any time.
class RunningDigest {
 public:
  RunningDigest();
  ~RunningDigest();
  RunningDigest(const RunningDigest&) = delete;
  RunningDigest& operator=(const RunningDigest&) = delete;
  void Add(absl::string_view bytes);
  std::string Hex() const;  // of all that was added so far

 private:
  evp_md_ctx_st* const context_;
};

// Lower-case hexadecimal HMAC-SHA256.
std::string HmacSha256Hex(absl::string_view key, absl::string_view bytes);

}  // namespace leeway

#endif  // LEEWAY_COMMON_RUNNING_DIGEST_H_
