// Everything that arrives from outside is checked here, and only here: join
// requests, report headers, payloads. A refusal is a Status that names the field
// and the remedy; nothing is added to any sum before its report is complete.
#ifndef LEEWAY_COMMON_WIRE_H_
#define LEEWAY_COMMON_WIRE_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/buffer.h"
#include "common/sums.h"
#include "common/tally.h"
#include "proto/federation.pb.h"

namespace leeway {

// Versions of the protocol that this build speaks: docs/wire-format.md.
inline constexpr uint32_t kOldestProtocol = 3;
inline constexpr uint32_t kNewestProtocol = 3;
// Payload and model bytes per message; measured best around 256 KiB to 1 MiB.
inline constexpr size_t kChunkBytes = size_t{1} << 20;
// A model file up to this size rides inside the order.
inline constexpr size_t kInlineModelBytes = size_t{64} << 10;
// No message is longer, whoever sends it: a chunk and its header, or a request to
// join with a million clients whose names are short.
inline constexpr size_t kMaxMessageBytes = size_t{16} << 20;
inline constexpr size_t kMaxHeaderBytes = kMaxMessageBytes - 2 * kChunkBytes;
// Clients that one process may host.
inline constexpr size_t kMostHosted = size_t{1} << 20;

grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

// Takes a join request apart, unless it has more clients than a process may host: an
// empty entry of 2 bytes becomes an object of 70.
absl::StatusOr<v1::JoinRequest> ParseJoin(const grpc::ByteBuffer& message);
// Versions, names, counts and schema of a join request.
absl::Status CheckJoin(const v1::JoinRequest& request);
// The newest version that both sides speak; an error that names both sides' versions if
// there is none.
absl::StatusOr<uint32_t> ChooseProtocol(const v1::JoinRequest& request);

// Bytes of a payload in this encoding.
absl::StatusOr<uint64_t> PayloadBytes(const TallyShape& shape, v1::Encoding encoding);

// Where payload bytes go; asked once the message's header (if any) is known, so
// that space is only made for reports that are welcome. Returns room for `bytes`
// bytes or an error that ends the upload.
class PayloadSink {
 public:
  virtual ~PayloadSink() = default;
  // More names than this a header cannot need; one that has more is not taken apart.
  virtual size_t MostNames() const = 0;
  virtual absl::Status OnHeader(v1::ReportHeader header) = 0;
  virtual absl::StatusOr<std::byte*> Room(size_t bytes) = 0;
};
absl::Status ParsePart(const grpc::ByteBuffer& message, PayloadSink& sink);

// Fields of a header that can be checked without knowing the run's state.
// `own` is how the report of a single client is to be written.
absl::Status CheckHeader(const v1::ReportHeader& header, const TaskSums& sums, v1::Encoding own);

// Takes a Chunk message apart and copies its bytes to `out`, which has room for
// `room`; returns how many there were.
absl::StatusOr<size_t> ParseChunk(const grpc::ByteBuffer& message, std::byte* out, size_t room);

// What a report is checked against besides its sums.
struct ReportLimits {
  double max_norm = 0;   // if positive, of each client's displacement; of a sum, of their mean
  uint64_t targets = 1;  // answers per test example
};

// Adds a complete payload to the tally. `shares` holds, for each group, those of the
// header's clients that were assigned to it. Unchanged on error. `workers` share long
// vectors among them. `norm`, if wanted, is set to the displacement's; of a sum, to its mean's.
absl::Status FoldReport(const v1::ReportHeader& header, absl::Span<const std::byte> payload,
                        absl::Span<const GroupShare> shares, const TaskSums& sums,
                        const ReportLimits& limits, Tally& tally, Workers* workers = nullptr,
                        double* norm = nullptr);
// What a displacement's norm may exceed max_norm by, relatively: rounding of a
// client that scaled its update down to the limit.
inline constexpr double kNormTolerance = 1e-5;

// Writing side: one message for a small report, else the header and then chunks.
// The messages share the payload's memory.
std::vector<grpc::ByteBuffer> EncodeReport(const v1::ReportHeader& header,
                                           const grpc::Slice& payload);
// One Chunk message holding a piece of a slice; shares the slice's memory.
grpc::ByteBuffer EncodeChunk(const grpc::Slice& file, size_t begin, size_t size);

}  // namespace leeway

#endif  // LEEWAY_COMMON_WIRE_H_
