#include "records/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  leeway::ParseConfig(text, "fuzz").status().IgnoreError();
  return 0;
}
