// Short ways to write a report's vectors: bfloat16 and blocks of int8. Both round
// at random without bias, so that the average over clients keeps its expectation;
// what is read back is a float32 to the last bit on every machine.
#ifndef LEEWAY_COMMON_ENCODING_H_
#define LEEWAY_COMMON_ENCODING_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/rng.h"
#include "proto/federation.pb.h"

namespace leeway {

// The encoding of a client's report to a task with this setting, for a model of
// float64 or float32.
v1::Encoding EncodingFor(v1::WireEncoding setting, bool float64);

// Bytes that so many values take.
size_t EncodedSize(v1::Encoding encoding, size_t values);

// For BFLOAT16 and INT8. Replaces `values` by what the reader will get, and returns
// the bytes. Values must be finite and within the range of float32.
template <typename T>
std::string EncodeShort(v1::Encoding encoding, absl::Span<T> values, Rng& rng);

// The same, read. Refuses a wrong size and scales that are not finite.
absl::Status DecodeShort(v1::Encoding encoding, absl::Span<const std::byte> bytes,
                         absl::Span<float> out);

}  // namespace leeway

#endif  // LEEWAY_COMMON_ENCODING_H_
