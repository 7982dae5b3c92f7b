// Text that came from others may hold any bytes; this tells what of it is UTF-8.
#ifndef LEEWAY_COMMON_UTF8_H_
#define LEEWAY_COMMON_UTF8_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace leeway {

// Length in bytes of the UTF-8 character that `text` starts with; 0 when it
// starts with none.
size_t Utf8SequenceLength(absl::string_view text);

// Whether the character that `text` starts with shows nothing of its own but changes
// how the text around it is shown: control characters, direction marks and overrides,
// zero-width characters, line and paragraph separators. In a name they are an attempt to
// look like another name.
bool Utf8IsHidden(absl::string_view text);

// The text as one line of a log: hidden characters and what is not UTF-8 are
// written as \xNN, and after some `most` bytes it ends with "...".
std::string OneLine(absl::string_view text, size_t most);

// Number of characters; a byte that is not UTF-8 counts as one.
size_t Utf8Length(absl::string_view text);

// For text and attribute values of XML and HTML: escapes < > & " ', replaces
// what is not UTF-8 by U+FFFD and control characters by spaces.
std::string EscapeXml(absl::string_view text);

}  // namespace leeway

#endif  // LEEWAY_COMMON_UTF8_H_
