// Text that came from others may hold any bytes. What we write from it is UTF-8.
#ifndef LEEWAY_CLI_UTF8_H_
#define LEEWAY_CLI_UTF8_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "common/utf8.h"

namespace leeway {

// Number of characters; a byte that is not UTF-8 counts as one.
size_t Utf8Length(absl::string_view text);

// For text and attribute values of XML and HTML: escapes < > & " ', replaces
// what is not UTF-8 by U+FFFD and control characters by spaces.
std::string EscapeXml(absl::string_view text);

}  // namespace leeway

#endif  // LEEWAY_CLI_UTF8_H_
