#include "common/wire.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/digest.h"
#include "common/encoding.h"
#include "common/reason.h"
#include "common/status.h"

namespace leeway {
namespace {

using google::protobuf::internal::WireFormatLite;

constexpr uint32_t kHeaderTag = WireFormatLite::MakeTag(v1::Part::kHeaderFieldNumber,
                                                        WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
constexpr uint32_t kDataTag =
    WireFormatLite::MakeTag(v1::Part::kDataFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
constexpr uint32_t kChunkTag =
    WireFormatLite::MakeTag(v1::Chunk::kDataFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);

// Headers up to this size are taken apart without a further look.
constexpr size_t kSmallHeaderBytes = size_t{64} << 10;
// Fields of a header or join request besides its names; there is room for new ones.
constexpr size_t kOtherFields = 64;

void AppendTagAndLength(uint32_t tag, size_t length, std::string& out) {
  uint8_t bytes[16];
  uint8_t* end = google::protobuf::io::CodedOutputStream::WriteVarint32ToArray(tag, bytes);
  end = google::protobuf::io::CodedOutputStream::WriteVarint64ToArray(length, end);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(end - bytes));
}

bool IsName(absl::string_view id) {
  if (id.empty() || id.size() > 256) return false;
  return std::none_of(id.begin(), id.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

absl::Status Malformed(absl::string_view what) {
  return WithReason(absl::InvalidArgumentError(absl::StrCat("malformed upload: ", what)),
                    "malformed");
}

// Entries of a message become objects many times their size: they are counted first.
// A message that is cut short is left to its parser.
size_t CountFields(google::protobuf::io::ZeroCopyInputStream& bytes) {
  google::protobuf::io::CodedInputStream in(&bytes);
  in.SetTotalBytesLimit(std::numeric_limits<int>::max());
  size_t fields = 0;
  while (const uint32_t tag = in.ReadTag()) {
    if (!WireFormatLite::SkipField(&in, tag)) break;
    ++fields;
  }
  return fields;
}

absl::Status BeyondNorm(double norm, double max_norm) {
  return WithReason(
      absl::OutOfRangeError(absl::StrCat(
          "the norm of the displacement is ", norm, ", beyond the limit ", max_norm,
          "; lower the step size, scale it down to the limit (limits.norm_policy: CLIP), or raise "
          "limits.max_norm or limits.median_multiple")),
      "norm");
}

template <typename T>
absl::Span<const T> ValuesIn(absl::Span<const std::byte> payload) {
  return {reinterpret_cast<const T*>(payload.data()), payload.size() / sizeof(T)};
}

absl::Status WrongGroup(absl::string_view what) {
  return WithReason(absl::InvalidArgumentError(absl::StrCat(
                        what, "; report each client in the group that its order says")),
                    "wrong_group");
}

// Of a sum, that it has all its integers, and each group the clients that were assigned
// to it.
absl::Status CheckGroups(absl::Span<const int64_t> flat, const TallyShape& shape,
                         absl::Span<const GroupShare> shares) {
  if (flat.size() != shape.flat_size() || shares.size() != shape.groups) {
    return WithReason(absl::InvalidArgumentError(absl::StrCat(
                          "tally has ", flat.size(), " integers, expected ", shape.flat_size())),
                      "wrong_length");
  }
  for (size_t g = 0; g < shares.size(); ++g) {
    const int64_t* in = flat.data() + g * shape.group_size();
    if (in[0] != static_cast<int64_t>(shares[g].clients) ||
        in[1] != static_cast<int64_t>(shares[g].weight)) {
      return WrongGroup(absl::StrCat("group ", g, " claims ", in[0], " clients of weight ", in[1],
                                     ", expected ", shares[g].clients, " of weight ",
                                     shares[g].weight));
    }
  }
  return absl::OkStatus();
}

// A short encoding rounds each value by at most the step of its block, 1/127 of the largest of
// 256 values: at worst the norm grows by 16/127.
constexpr double kDecodedTolerance = 0.13;

// 0 without a displacement.
template <typename T>
double NormOf(absl::Span<const T> vectors, const TaskSums& sums) {
  const int place = sums.vector(kDisplacement);
  if (place == TaskSums::kNone) return 0;
  const size_t dimension = sums.shape().dimension;
  return std::sqrt(SquaredNorm(vectors.subspan(static_cast<size_t>(place) * dimension, dimension)));
}

// |sum v_c u_c| <= sum v_c |u_c|: all that a sum can tell.
double NormOfMean(absl::Span<const int64_t> flat, const TaskSums& sums, uint64_t weight) {
  const int place = sums.vector(kDisplacement);
  if (place == TaskSums::kNone) return 0;
  const TallyShape& shape = sums.shape();
  const size_t begin = shape.vectors_begin() + static_cast<size_t>(place) * shape.dimension;
  std::vector<double> sum(shape.dimension, 0.0);
  for (size_t g = 0; g < shape.groups; ++g) {
    for (size_t i = 0; i < shape.dimension; ++i) {
      sum[i] += static_cast<double>(flat[g * shape.group_size() + begin + i]);
    }
  }
  const int bits = shape.vectors[static_cast<size_t>(place)].fraction_bits;
  return std::ldexp(std::sqrt(SquaredNorm<double>(sum)), -bits) /
         static_cast<double>(std::max<uint64_t>(weight, 1));
}

// A norm that is NaN says nothing here: the coordinate behind it is named when the
// report is added.
absl::Status CheckNorm(double norm, double max_norm, double tolerance) {
  const bool beyond = max_norm > 0 && std::isfinite(norm) && norm > max_norm * (1 + tolerance);
  return beyond ? BeyondNorm(norm, max_norm) : absl::OkStatus();
}

// Nor have more of them a label or a score above anything.
absl::Status CheckTestCounts(absl::Span<const int64_t> flat, size_t group, double tested,
                             const TaskSums& sums) {
  for (const char* name : {kTestLabelAbove, kPositiveScoreAbove, kNegativeScoreAbove}) {
    const int first = sums.number(name);
    if (first == TaskSums::kNone) continue;
    // Counts of one name stand side by side.
    for (auto i = static_cast<size_t>(first);
         i < sums.numbers() && sums.shape().numbers[i].name == name; ++i) {
      const double count = NumberIn(flat, sums.shape(), group, i);
      if (0 <= count && count <= tested) continue;
      return WithReason(absl::InvalidArgumentError(absl::StrCat(
                            name, " is ", count, " of ", tested,
                            " test examples; count the examples of the client's test part")),
                        "test_examples");
    }
  }
  return absl::OkStatus();
}

// Nobody has tested on more targets than it joined with, or answered more correctly.
absl::Status CheckTests(absl::Span<const int64_t> flat, absl::Span<const GroupShare> shares,
                        const TaskSums& sums, uint64_t targets) {
  const int examples = sums.number(kTestExamples);
  const int correct = sums.number(kTestCorrect);
  if (examples == TaskSums::kNone || correct == TaskSums::kNone) return absl::OkStatus();
  for (size_t g = 0; g < shares.size(); ++g) {
    const double tested = NumberIn(flat, sums.shape(), g, static_cast<size_t>(examples));
    const double right = NumberIn(flat, sums.shape(), g, static_cast<size_t>(correct));
    const double most = static_cast<double>(shares[g].test_examples) * static_cast<double>(targets);
    if (0 <= right && right <= tested && tested <= most) {
      LEEWAY_RETURN_IF_ERROR(CheckTestCounts(flat, g, tested, sums));
      continue;
    }
    return WithReason(
        absl::InvalidArgumentError(absl::StrCat(
            right, " of ", tested, " test examples are said to be right, expected at most ", most,
            "; evaluate the test part that the client joined with")),
        "test_examples");
  }
  return absl::OkStatus();
}

// The mean of squares is at least the square of the mean: a process that sums its
// clients' reports itself cannot make their losses look more alike than they can be.
absl::Status CheckSpread(absl::Span<const int64_t> flat, absl::Span<const GroupShare> shares,
                         const TaskSums& sums) {
  constexpr double kSlack = 1e-9;  // of rounding
  const int loss = sums.number(kLoss);
  const int squared = sums.number(kLossSquared);
  if (loss == TaskSums::kNone || squared == TaskSums::kNone) return absl::OkStatus();
  for (size_t g = 0; g < shares.size(); ++g) {
    const double sum = NumberIn(flat, sums.shape(), g, static_cast<size_t>(loss));
    const double squares = NumberIn(flat, sums.shape(), g, static_cast<size_t>(squared));
    if (sum * sum <= squares * static_cast<double>(shares[g].weight) * (1 + kSlack)) continue;
    return WithReason(absl::InvalidArgumentError(absl::StrCat(
                          "group ", g, ": loss is ", sum, " in all and loss_squared ", squares,
                          ", less than any clients of weight ", shares[g].weight,
                          " can have; report the sum of what each client measured")),
                      "impossible_sum");
  }
  return absl::OkStatus();
}

// A client is counted once, whatever it weighs.
absl::Status CheckCount(const TaskSums& sums, size_t number, double counted, uint64_t clients) {
  constexpr double kSlack = 1e-9;  // of rounding: 1/v, times v
  if (!sums.CountsClients(number) || counted <= static_cast<double>(clients) * (1 + kSlack)) {
    return absl::OkStatus();
  }
  return WithReason(absl::InvalidArgumentError(absl::StrCat(
                        sums.shape().numbers[number].name, " counts ", counted,
                        " clients, expected at most ", clients, "; count each client once")),
                    "impossible_sum");
}

absl::Status CheckCounts(absl::Span<const int64_t> flat, absl::Span<const GroupShare> shares,
                         const TaskSums& sums) {
  for (size_t i = 0; i < sums.numbers(); ++i) {
    if (!sums.CountsClients(i)) continue;
    for (size_t g = 0; g < shares.size(); ++g) {
      LEEWAY_RETURN_IF_ERROR(
          CheckCount(sums, i, NumberIn(flat, sums.shape(), g, i), shares[g].clients));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> Decode(v1::Encoding encoding,
                                          absl::Span<const std::byte> payload,
                                          const TallyShape& shape) {
  std::vector<float> values(shape.vectors.size() * shape.dimension);
  const size_t bytes = EncodedSize(encoding, shape.dimension);
  for (size_t k = 0; k < shape.vectors.size(); ++k) {
    LEEWAY_RETURN_IF_ERROR(WithReason(
        DecodeShort(encoding, payload.subspan(k * bytes, bytes),
                    absl::MakeSpan(values).subspan(k * shape.dimension, shape.dimension)),
        "malformed"));
  }
  return values;
}

// One client's report.
template <typename T>
absl::Status AddReport(const v1::ReportHeader& header, absl::Span<const T> vectors, uint64_t weight,
                       const TaskSums& sums, const ReportLimits& limits, Tally& tally,
                       Workers* workers, double* norm) {
  const bool decoded = header.encoding() == v1::BFLOAT16 || header.encoding() == v1::INT8;
  if (norm != nullptr || limits.max_norm > 0) {
    const double own = NormOf(vectors, sums);
    if (norm != nullptr) *norm = own;
    LEEWAY_RETURN_IF_ERROR(
        CheckNorm(own, limits.max_norm, decoded ? kDecodedTolerance : kNormTolerance));
  }
  std::vector<double> numbers =
      sums.Spread({header.numbers().data(), static_cast<size_t>(header.numbers_size())});
  sums.Derive<T>(weight, vectors, absl::MakeSpan(numbers), decoded);
  for (size_t i = 0; i < numbers.size(); ++i) {
    LEEWAY_RETURN_IF_ERROR(CheckCount(sums, i, numbers[i] * static_cast<double>(weight), 1));
  }
  return tally.Add<T>(header.group(), weight, numbers, vectors, workers);
}

// The exact sum of several clients' reports.
absl::Status FoldSum(const v1::ReportHeader& header, absl::Span<const int64_t> flat,
                     absl::Span<const GroupShare> shares, uint64_t weight, const TaskSums& sums,
                     const ReportLimits& limits, Tally& tally, double* norm) {
  LEEWAY_RETURN_IF_ERROR(CheckGroups(flat, sums.shape(), shares));
  if (norm != nullptr || limits.max_norm > 0) {
    const double own = NormOfMean(flat, sums, weight);
    if (norm != nullptr) *norm = own;
    LEEWAY_RETURN_IF_ERROR(CheckNorm(own, limits.max_norm, kNormTolerance));
  }
  LEEWAY_RETURN_IF_ERROR(CheckTests(flat, shares, sums, limits.targets));
  LEEWAY_RETURN_IF_ERROR(CheckSpread(flat, shares, sums));
  LEEWAY_RETURN_IF_ERROR(CheckCounts(flat, shares, sums));
  return WithReason(tally.MergeFlat(flat, static_cast<uint64_t>(header.clients_size()), weight),
                    "impossible_sum");
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

absl::StatusOr<v1::JoinRequest> ParseJoin(const grpc::ByteBuffer& message) {
  grpc::ByteBuffer view = message;  // shares the slices
  grpc::ProtoBufferReader reader(&view);
  if (CountFields(reader) > kMostHosted + kOtherFields) {
    return WithReason(
        absl::InvalidArgumentError(absl::StrCat("clients has more than ", kMostHosted,
                                                " entries; share them among several processes")),
        "too_many_names");
  }
  view = message;
  v1::JoinRequest request;
  if (!grpc::SerializationTraits<v1::JoinRequest>::Deserialize(&view, &request).ok()) {
    return WithReason(absl::InvalidArgumentError("request is not a JoinRequest"), "malformed");
  }
  return request;
}

absl::StatusOr<uint32_t> ChooseProtocol(const v1::JoinRequest& request) {
  const uint32_t oldest = request.oldest_version();
  const uint32_t newest = std::max(oldest, request.newest_version());
  if (oldest <= kNewestProtocol && newest >= kOldestProtocol) {
    return std::min(newest, kNewestProtocol);
  }
  const auto range = [](uint32_t from, uint32_t to) {
    return from == to ? absl::StrCat(from) : absl::StrCat(from, " to ", to);
  };
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat(
          "this process speaks version ", range(oldest, newest), " of the protocol, the server ",
          range(kOldestProtocol, kNewestProtocol), "; install a newer Leeway on the ",
          newest < kOldestProtocol ? "process's" : "server's", " side")),
      "protocol_version");
}

absl::Status CheckJoin(const v1::JoinRequest& request) {
  LEEWAY_RETURN_IF_ERROR(ChooseProtocol(request).status());
  if (request.clients().empty()) {
    return absl::InvalidArgumentError("clients is empty; a process must host at least one client");
  }
  if (!request.host().empty() && !IsName(request.host())) {
    return WithReason(absl::InvalidArgumentError(
                          absl::StrCat("host has ", request.host().size(),
                                       " bytes or a control character; give leeway-client a --name "
                                       "of at most 256 bytes without control characters")),
                      "host");
  }
  std::set<absl::string_view> names;
  for (const v1::HostedClient& client : request.clients()) {
    if (!IsName(client.id())) {
      return absl::InvalidArgumentError(
          "a client id must be 1 to 256 bytes without control characters");
    }
    if (!names.insert(client.id()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("client '", client.id(), "' is listed twice in one join request"));
    }
    if (client.test_examples() > (uint64_t{1} << 40)) {
      return WithReason(absl::InvalidArgumentError(
                            absl::StrCat("client '", client.id(), "' has ", client.test_examples(),
                                         " test examples; expected at most 2^40")),
                        "examples");
    }
    if (client.evaluator()) {
      if (client.examples() == 0 && client.test_examples() > 0) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("evaluator '", client.id(), "' has ", client.examples(), " training and ",
                       client.test_examples(), " test examples; expected none and some"));
    }
    if (client.examples() < 1 || client.examples() > (uint64_t{1} << 40)) {
      return WithReason(absl::InvalidArgumentError(absl::StrCat("client '", client.id(), "' has ",
                                                                client.examples(),
                                                                " examples; expected 1 to 2^40")),
                        "examples");
    }
  }
  uint64_t features = 1;
  for (uint64_t side : request.schema().feature_shape()) {
    if (side < 1 || side > (uint64_t{1} << 32) || features > (uint64_t{1} << 32)) {
      return absl::InvalidArgumentError("schema.feature_shape has an impossible side");
    }
    features *= side;
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> PayloadBytes(const TallyShape& shape, v1::Encoding encoding) {
  switch (encoding) {
    case v1::FLOAT32:
    case v1::FLOAT64:
    case v1::BFLOAT16:
    case v1::INT8:
      return EncodedSize(encoding, shape.dimension) * shape.vectors.size();
    case v1::TALLY:
      return uint64_t{8} * shape.flat_size();
    default:
      return absl::InvalidArgumentError(absl::StrCat("encoding ", static_cast<int>(encoding),
                                                     " is unknown; use the task's, or TALLY"));
  }
}

absl::Status ParsePart(const grpc::ByteBuffer& message, PayloadSink& sink) {
  grpc::ByteBuffer view = message;  // shares the slices
  grpc::ProtoBufferReader reader(&view);
  google::protobuf::io::CodedInputStream in(&reader);
  in.SetTotalBytesLimit(std::numeric_limits<int>::max());
  while (const uint32_t tag = in.ReadTag()) {
    if (tag != kHeaderTag && tag != kDataTag) {
      if (!WireFormatLite::SkipField(&in, tag)) return Malformed("unknown field is cut short");
      continue;
    }
    uint32_t length = 0;
    if (!in.ReadVarint32(&length)) return Malformed("length is cut short");
    if (length > message.Length()) return Malformed("a length exceeds its message");
    if (tag == kHeaderTag) {
      std::string bytes;
      if (length > kMaxHeaderBytes) return Malformed("header is too large");
      if (!in.ReadString(&bytes, static_cast<int>(length))) return Malformed("header is cut short");
      if (bytes.size() > kSmallHeaderBytes) {
        google::protobuf::io::ArrayInputStream entries(bytes.data(), static_cast<int>(length));
        const size_t most = sink.MostNames();
        if (CountFields(entries) > most + kOtherFields) {
          return WithReason(absl::InvalidArgumentError(
                                absl::StrCat("the header names more clients than the run has, ",
                                             most, "; name each client of the report once")),
                            "too_many_names");
        }
      }
      v1::ReportHeader header;
      if (!header.ParseFromString(bytes)) return Malformed("header is not a ReportHeader");
      LEEWAY_RETURN_IF_ERROR(sink.OnHeader(std::move(header)));
    } else {
      LEEWAY_ASSIGN_OR_RETURN(std::byte* const room, sink.Room(length));
      if (!in.ReadRaw(room, static_cast<int>(length))) return Malformed("data is cut short");
    }
  }
  if (!in.ConsumedEntireMessage()) return Malformed("trailing bytes");
  return absl::OkStatus();
}

absl::Status CheckHeader(const v1::ReportHeader& header, const TaskSums& sums, v1::Encoding own) {
  if (header.clients().empty()) {
    if (header.failures().empty()) return absl::InvalidArgumentError("clients is empty");
    if (header.payload_size() == 0) return absl::OkStatus();
    return absl::InvalidArgumentError("a report of failures only has no payload");
  }
  if (header.encoding() != v1::TALLY) {
    if (header.clients_size() != 1) {
      return absl::InvalidArgumentError(
          "a report of several clients must be sent as a TALLY, their exact sum");
    }
    if (header.encoding() != own) {
      return WithReason(absl::InvalidArgumentError(
                            absl::StrCat("encoding is ", v1::Encoding_Name(header.encoding()),
                                         ", this task's reports are ", v1::Encoding_Name(own))),
                        "wrong_type");
    }
    if (static_cast<size_t>(header.numbers_size()) != sums.sent_numbers()) {
      return WithReason(absl::InvalidArgumentError(absl::StrCat(
                            "numbers has ", header.numbers_size(),
                            " entries, this task's reports have ", sums.sent_numbers())),
                        "wrong_length");
    }
  }
  LEEWAY_ASSIGN_OR_RETURN(const uint64_t expected, PayloadBytes(sums.shape(), header.encoding()));
  if (header.payload_size() != expected) {
    return WithReason(
        absl::InvalidArgumentError(absl::StrCat("payload_size is ", header.payload_size(),
                                                " bytes, this task's reports have ", expected)),
        "wrong_length");
  }
  return absl::OkStatus();
}

absl::Status FoldReport(const v1::ReportHeader& header, absl::Span<const std::byte> payload,
                        absl::Span<const GroupShare> shares, const TaskSums& sums,
                        const ReportLimits& limits, Tally& tally, Workers* workers, double* norm) {
  const absl::string_view bytes(reinterpret_cast<const char*>(payload.data()), payload.size());
  if (Xxh3(bytes) != header.payload_hash()) {
    return WithReason(
        absl::DataLossError("payload_hash does not match the payload; send the report again"),
        "checksum");
  }
  uint64_t weight = 0;
  for (const GroupShare& share : shares) weight += share.weight;
  if (header.encoding() == v1::TALLY) {
    return FoldSum(header, ValuesIn<int64_t>(payload), shares, weight, sums, limits, tally, norm);
  }
  if (header.weight() != weight) {
    return WithReason(
        absl::InvalidArgumentError(
            absl::StrCat("weight is ", header.weight(), ", this client is enrolled with ", weight)),
        "examples");
  }
  if (header.group() >= shares.size() || shares[header.group()].clients == 0) {
    return WrongGroup(absl::StrCat("group is ", header.group()));
  }
  if (sums.vectors() == 0) {  // small: looked at before it is added
    Tally report(sums.shape());
    LEEWAY_RETURN_IF_ERROR(
        AddReport<double>(header, {}, weight, sums, limits, report, nullptr, nullptr));
    LEEWAY_RETURN_IF_ERROR(CheckTests(report.flat(), shares, sums, limits.targets));
    return tally.Merge(report);
  }
  if (header.encoding() == v1::FLOAT64) {
    return AddReport<double>(header, ValuesIn<double>(payload), weight, sums, limits, tally,
                             workers, norm);
  }
  if (header.encoding() == v1::FLOAT32) {
    return AddReport<float>(header, ValuesIn<float>(payload), weight, sums, limits, tally, workers,
                            norm);
  }
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<float> values,
                          Decode(header.encoding(), payload, sums.shape()));
  return AddReport<float>(header, values, weight, sums, limits, tally, workers, norm);
}

std::vector<grpc::ByteBuffer> EncodeReport(const v1::ReportHeader& header,
                                           const grpc::Slice& payload) {
  std::vector<grpc::ByteBuffer> messages;
  std::string prefix;
  AppendTagAndLength(kHeaderTag, header.ByteSizeLong(), prefix);
  header.AppendToString(&prefix);
  if (payload.size() > kChunkBytes) {
    // The header goes ahead, so that a server without room for the payload has
    // read nothing of it yet.
    const grpc::Slice alone(prefix);
    messages.emplace_back(&alone, 1);
    prefix.clear();
  }
  size_t sent = 0;
  do {
    const size_t size = std::min(kChunkBytes, payload.size() - sent);
    AppendTagAndLength(kDataTag, size, prefix);
    const grpc::Slice slices[] = {grpc::Slice(prefix), payload.sub(sent, sent + size)};
    messages.emplace_back(slices, 2);
    prefix.clear();
    sent += size;
  } while (sent < payload.size());
  return messages;
}

absl::StatusOr<size_t> ParseChunk(const grpc::ByteBuffer& message, std::byte* out, size_t room) {
  grpc::ByteBuffer view = message;  // shares the slices
  grpc::ProtoBufferReader reader(&view);
  google::protobuf::io::CodedInputStream in(&reader);
  uint32_t length = 0;
  if (in.ReadTag() != kChunkTag || !in.ReadVarint32(&length)) return Malformed("not a Chunk");
  if (length > room) return Malformed("more bytes than the file has");
  if (!in.ReadRaw(out, static_cast<int>(length))) return Malformed("chunk is cut short");
  return length;
}

grpc::ByteBuffer EncodeChunk(const grpc::Slice& file, size_t begin, size_t size) {
  std::string prefix;
  AppendTagAndLength(kChunkTag, size, prefix);
  const grpc::Slice slices[] = {grpc::Slice(prefix), file.sub(begin, begin + size)};
  return grpc::ByteBuffer(slices, 2);
}

}  // namespace leeway
