// Text that came from others may hold any bytes; this tells what of it is UTF-8.
#ifndef LEEWAY_COMMON_UTF8_H_
#define LEEWAY_COMMON_UTF8_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace leeway {

// Length in bytes of the UTF-8 character that `text` starts with; 0 when it
// starts with none.
size_t Utf8SequenceLength(absl::string_view text);

}  // namespace leeway

#endif  // LEEWAY_COMMON_UTF8_H_
