// Anything as the integers of a sum, and as one client's values.
#include <cstring>
#include <vector>

#include "common/tally.h"
#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const leeway::TallyShape shape = leeway::FuzzSums().shape();
  leeway::Tally tally(shape);
  std::vector<int64_t> flat(size / 8);
  if (!flat.empty()) std::memcpy(flat.data(), data, flat.size() * 8);
  flat.resize(shape.flat_size());
  tally.MergeFlat(flat, leeway::kFuzzClients, leeway::kFuzzWeight).IgnoreError();
  std::vector<double> values(size / 8);
  if (!values.empty()) std::memcpy(values.data(), data, values.size() * 8);
  const size_t numbers = shape.numbers.size();
  values.resize(numbers + shape.vectors.size() * shape.dimension);
  tally
      .Add<double>(size % 3, size % 5, absl::MakeConstSpan(values).subspan(0, numbers),
                   absl::MakeConstSpan(values).subspan(numbers))
      .IgnoreError();
  for (size_t i = 0; i < shape.vectors.size(); ++i) tally.vector(i);
  for (size_t i = 0; i < numbers; ++i) tally.number(i);
  return 0;
}
