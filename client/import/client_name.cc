#include "client/import/client_name.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/rng.h"
#include "common/utf8.h"

namespace leeway {
namespace {

// ext4, XFS and others allow 255 bytes.
constexpr size_t kLongest = 200;

std::string Escaped(absl::string_view text, bool path) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t length = Utf8SequenceLength(text.substr(i));
    const bool unsafe = byte == '/' || byte == '\\' || byte == '%' || (i == 0 && byte == '.');
    if (length == 0 || Utf8IsHidden(text.substr(i)) || (path && unsafe)) {
      const size_t end = i + std::max<size_t>(1, length);
      for (; i < end; ++i) {
        absl::StrAppendFormat(&out, "%%%02X", static_cast<unsigned>(text[i]) & 0xff);
      }
    } else {
      out.append(text.data() + i, length);
      i += length;
    }
  }
  return out;
}

}  // namespace

std::string Printable(absl::string_view text) { return Escaped(text, /*path=*/false); }

std::string DirectoryName(absl::string_view client) {
  // A lone '%' cannot come from escaping, so it can stand for "no name". The
  // names of the federation's own files are kept free.
  if (client.empty()) return "%";
  if (client == "federation.json" || client == "vocabulary.txt") {
    return absl::StrFormat("%%%02X%s", static_cast<unsigned>(client[0]), client.substr(1));
  }
  std::string name = Escaped(client, /*path=*/true);
  if (name.size() <= kLongest) return name;
  size_t keep = kLongest - 17;
  while ((static_cast<unsigned char>(name[keep]) & 0xc0) == 0x80) --keep;
  return absl::StrFormat("%s%%%016x", name.substr(0, keep), ClientKey(client));
}

}  // namespace leeway
