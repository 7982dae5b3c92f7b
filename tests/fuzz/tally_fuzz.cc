// Anything as the integers of a sum, and as one client's values.
#include <cstring>
#include <vector>

#include "common/tally.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  leeway::TallyShape shape;
  shape.dimension = 2;
  shape.vectors = 2;
  shape.scalars = 1;
  shape.groups = 2;
  shape.fraction_bits = 50;
  leeway::Tally tally(shape);
  std::vector<int64_t> flat(size / 8);
  if (!flat.empty()) std::memcpy(flat.data(), data, flat.size() * 8);
  flat.resize(shape.flat_size());
  tally.MergeFlat(flat, 2, 3).IgnoreError();
  std::vector<double> values(size / 8);
  if (!values.empty()) std::memcpy(values.data(), data, values.size() * 8);
  values.resize(5);
  tally
      .Add<double>(size % 3, size % 5, absl::MakeConstSpan(values).subspan(0, 1),
                   absl::MakeConstSpan(values).subspan(1, 4))
      .IgnoreError();
  for (size_t i = 0; i < shape.vectors; ++i) tally.vector(i);
  tally.scalar(0);
  return 0;
}
