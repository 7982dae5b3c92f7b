// Hashes: sha256 names model files; XXH3 guards transfers.
#ifndef LEEWAY_COMMON_DIGEST_H_
#define LEEWAY_COMMON_DIGEST_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace leeway {

// Lower-case hexadecimal sha256.
std::string Sha256Hex(absl::string_view bytes);

// XXH3, 64 bits. Not cryptographic.
uint64_t Xxh3(absl::string_view bytes);

}  // namespace leeway

#endif  // LEEWAY_COMMON_DIGEST_H_
