// "1 round", "2 rounds".
#ifndef LEEWAY_COMMON_PLURAL_H_
#define LEEWAY_COMMON_PLURAL_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace leeway {

inline std::string Counted(uint64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

}  // namespace leeway

#endif  // LEEWAY_COMMON_PLURAL_H_
