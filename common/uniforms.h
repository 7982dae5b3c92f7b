// Uniforms: the uniform numbers of a stream from its beginning, many at a time. They are
// those that Rng::Uniform gives one by one, to the bit. Not thread-safe.
#ifndef LEEWAY_COMMON_UNIFORMS_H_
#define LEEWAY_COMMON_UNIFORMS_H_

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "common/rng.h"

namespace leeway {

class Uniforms {
 public:
  // Of the same stream as `rng`, whatever that has given out.
  explicit Uniforms(const Rng& rng) : name_(rng.Name()) {}

  // The next out.size() numbers.
  void Fill(absl::Span<double> out);
  double Next() {
    double value;
    Fill({&value, 1});
    return value;
  }

 private:
  // The two numbers of a block.
  std::array<double, 2> Block(uint64_t block) const;
  // out = the numbers of `blocks` blocks, from the `first` on.
  void FillBlocks(uint64_t first, uint64_t blocks, double* out) const;

  const std::array<uint32_t, 4> name_;
  uint64_t next_ = 0;  // place of the next number in the stream
};

}  // namespace leeway

#endif  // LEEWAY_COMMON_UNIFORMS_H_
