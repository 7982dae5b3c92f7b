#include "common/model_file.h"
#include "common/model_layout.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const leeway::ModelLayout layout = [] {
    leeway::v1::Model model;
    model.mutable_softmax_regression()->set_classes(2);
    leeway::v1::DataSchema schema;
    schema.add_feature_shape(3);
    schema.set_labels(true);
    return *leeway::LayoutOf(model, schema);
  }();
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  leeway::DecodeModel(bytes, layout.tensors, "fuzz").status().IgnoreError();
  return 0;
}
