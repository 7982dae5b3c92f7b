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

// The text as one line of a log: control characters and what is not UTF-8 are
// written as \xNN, and after some `most` bytes it ends with "...".
std::string OneLine(absl::string_view text, size_t most);

}  // namespace leeway

#endif  // LEEWAY_COMMON_UTF8_H_
