#include "common/model_file.h"
#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const leeway::ModelLayout layout = leeway::FuzzLayout();
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  leeway::DecodeModel(bytes, layout.tensors, "fuzz").status().IgnoreError();
  return 0;
}
