#include "common/encoding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace leeway {
namespace {

constexpr size_t kBlock = 256;  // values that share an int8 scale
constexpr float kSteps = 127;

float FromBfloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Adding 16 random bits below the cut and cutting rounds up with the probability
// of what is cut off.
uint16_t ToBfloat16(float value, uint16_t random) {
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(value) + random) >> 16);
}

float Int8Value(int8_t step, float scale) { return static_cast<float>(step) * scale; }

template <typename T>
void EncodeBfloat16(absl::Span<T> values, Rng& rng, char* out) {
  uint64_t random = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % 4 == 0) random = rng.Next64();
    const uint16_t bits =
        ToBfloat16(static_cast<float>(values[i]), static_cast<uint16_t>(random >> (16 * (i % 4))));
    std::memcpy(out + i * sizeof(bits), &bits, sizeof(bits));
    values[i] = static_cast<T>(FromBfloat16(bits));
  }
}

template <typename T>
void EncodeInt8(absl::Span<T> values, Rng& rng, char* out) {
  for (size_t begin = 0; begin < values.size(); begin += kBlock) {
    const absl::Span<T> block = values.subspan(begin, kBlock);
    double largest = 0;
    for (const T x : block) largest = std::max(largest, std::abs(static_cast<double>(x)));
    const float scale = static_cast<float>(largest) / kSteps;
    std::memcpy(out, &scale, sizeof(scale));
    out += sizeof(scale);
    for (T& x : block) {
      const double steps = scale > 0 ? static_cast<double>(x) / static_cast<double>(scale) : 0;
      const double rounded = std::floor(steps + rng.Uniform());
      const auto step = static_cast<int8_t>(std::clamp(rounded, -127.0, 127.0));
      std::memcpy(out++, &step, 1);
      x = static_cast<T>(Int8Value(step, scale));
    }
  }
}

}  // namespace

v1::Encoding EncodingFor(v1::WireEncoding setting, bool float64) {
  switch (setting) {
    case v1::BFLOAT16_WIRE:
      return v1::BFLOAT16;
    case v1::INT8_WIRE:
      return v1::INT8;
    default:
      return float64 ? v1::FLOAT64 : v1::FLOAT32;
  }
}

size_t EncodedSize(v1::Encoding encoding, size_t values) {
  switch (encoding) {
    case v1::BFLOAT16:
      return 2 * values;
    case v1::INT8:
      return values + sizeof(float) * ((values + kBlock - 1) / kBlock);
    case v1::FLOAT32:
      return 4 * values;
    default:
      return 8 * values;
  }
}

template <typename T>
std::string EncodeShort(v1::Encoding encoding, absl::Span<T> values, Rng& rng) {
  std::string bytes(EncodedSize(encoding, values.size()), '\0');
  encoding == v1::BFLOAT16 ? EncodeBfloat16(values, rng, bytes.data())
                           : EncodeInt8(values, rng, bytes.data());
  return bytes;
}

template std::string EncodeShort<float>(v1::Encoding, absl::Span<float>, Rng&);
template std::string EncodeShort<double>(v1::Encoding, absl::Span<double>, Rng&);

absl::Status DecodeShort(v1::Encoding encoding, absl::Span<const std::byte> bytes,
                         absl::Span<float> out) {
  if (bytes.size() != EncodedSize(encoding, out.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(bytes.size(), " bytes for ", out.size(), " values"));
  }
  const std::byte* in = bytes.data();
  if (encoding == v1::BFLOAT16) {
    for (size_t i = 0; i < out.size(); ++i) {
      uint16_t bits = 0;
      std::memcpy(&bits, in + i * sizeof(bits), sizeof(bits));
      out[i] = FromBfloat16(bits);
    }
    return absl::OkStatus();
  }
  for (size_t begin = 0; begin < out.size(); begin += kBlock) {
    float scale = 0;
    std::memcpy(&scale, in, sizeof(scale));
    in += sizeof(scale);
    if (!std::isfinite(scale)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the int8 scale of coordinates from ", begin, " on is ", scale));
    }
    for (float& x : out.subspan(begin, kBlock)) x = Int8Value(static_cast<int8_t>(*in++), scale);
  }
  return absl::OkStatus();
}

}  // namespace leeway
