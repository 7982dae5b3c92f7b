// Anything as the messages of one upload, and as a Chunk: taken apart, checked and
// folded as the server does it.
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <optional>

#include "common/digest.h"
#include "common/wire.h"
#include "tests/fuzz/targets.h"

namespace leeway {
namespace {

class Upload : public PayloadSink {
 public:
  size_t MostNames() const override { return 1000; }
  absl::Status OnHeader(v1::ReportHeader header) override {
    for (const v1::Encoding own : {v1::FLOAT32, v1::FLOAT64, v1::BFLOAT16, v1::INT8}) {
      sums_ = FuzzSums(FuzzWire(own));
      const absl::Status status = CheckHeader(header, sums_, own);
      if (!status.ok()) continue;
      buffer_.Resize(header.payload_size());
      std::fill_n(buffer_.data(), buffer_.size(), std::byte{0});
      received_ = 0;
      header_ = std::move(header);
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError("refused");
  }
  absl::StatusOr<std::byte*> Room(size_t bytes) override {
    if (!header_ || bytes > header_->payload_size() - received_) {
      return absl::InvalidArgumentError("no room");
    }
    std::byte* room = buffer_.data() + received_;
    received_ += bytes;
    return room;
  }
  void Fold() {
    if (!header_ || header_->clients().empty()) return;
    // The right checksum, so that what lies behind it is reached.
    const char* bytes = reinterpret_cast<const char*>(buffer_.data());
    header_->set_payload_hash(Xxh3({bytes, buffer_.size()}));
    Tally tally(sums_.shape());
    const std::vector<GroupShare> shares = FuzzShares(header_->clients_size());
    for (const double max_norm : {0.0, 1.0}) {
      FoldReport(*header_, {buffer_.data(), buffer_.size()}, shares, sums_, {.max_norm = max_norm},
                 tally)
          .IgnoreError();
    }
  }

 private:
  TaskSums sums_;
  std::optional<v1::ReportHeader> header_;
  Buffer buffer_;
  size_t received_ = 0;
};

}  // namespace
}  // namespace leeway

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // In two slices, as the network may cut it.
  const size_t cut = size / 2;
  const grpc::Slice slices[] = {grpc::Slice(data, cut), grpc::Slice(data + cut, size - cut)};
  const grpc::ByteBuffer message(slices, 2);
  leeway::Upload upload;
  if (leeway::ParsePart(message, upload).ok()) upload.Fold();
  std::byte out[64];
  leeway::ParseChunk(message, out, sizeof out).IgnoreError();
  leeway::v1::JoinRequest join;
  if (join.ParseFromArray(data, static_cast<int>(size))) leeway::CheckJoin(join).IgnoreError();
  return 0;
}
