#include "server/submit_stream.h"

#include <grpcpp/alarm.h>

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/mutex.h"
#include "common/reason.h"
#include "common/status.h"
#include "common/wire.h"

namespace leeway {
namespace {

using grpc::ByteBuffer;

absl::Status OutOfOrder(absl::string_view what) {
  return WithReason(absl::InvalidArgumentError(what), "chunk_order");
}

// Reads reports one after the other. Callbacks of one stream come one at a time,
// except OnCancel and a granted staging buffer; mu_ orders those.
class SubmitStream : public grpc::ServerBidiReactor<ByteBuffer, ByteBuffer>, public PayloadSink {
 public:
  static SubmitStream* Start(Engine& engine, Staging& staging, Visit visit) {
    auto stream = std::make_shared<SubmitStream>(engine, staging, std::move(visit));
    stream->self_ = stream;
    stream->ReadOn();
    return stream.get();
  }

  SubmitStream(Engine& engine, Staging& staging, Visit visit)
      : engine_(engine), staging_(staging), visit_(std::move(visit)) {}

  void OnReadDone(bool ok) override {
    TakeOver(this);
    {
      MutexLock lock(&mu_);
      reading_ = false;
      if (finished_) return;
    }
    if (ok) return Process();
    End(header_ ? absl::CancelledError("the upload ended before its report was complete")
                : absl::OkStatus());
  }
  void OnWriteDone(bool ok) override {
    TakeOver(this);
    if (!ok) return End(absl::CancelledError("the stream is gone"));
    ReadOn();
  }
  void OnCancel() override {
    MutexLock lock(&mu_);
    cancelled_ = true;
    // A stream that waits for staging has no read under way that would fail.
    if (waiting_) FinishOnce(grpc::Status::CANCELLED);
  }
  void OnDone() override {
    TakeOver(this);
    { MutexLock lock(&mu_); }  // an OnCancel has let go of it
    alarm_.reset();
    const Visit ended = std::move(visit_);
    if (large_) staging_.Return(std::move(large_));
    std::shared_ptr<SubmitStream> self = std::move(self_);  // a waiting grant may hold it too
  }

  // PayloadSink
  absl::Status OnHeader(v1::ReportHeader header) override {
    if (header_) {
      return OutOfOrder("a header came before the previous report was complete");
    }
    LEEWAY_RETURN_IF_ERROR(visit_.StillWelcome());
    LEEWAY_RETURN_IF_ERROR(visit_.identity().MayReport(header));
    LEEWAY_RETURN_IF_ERROR(engine_.Admit(header));
    header_ = std::move(header);
    received_ = 0;
    if (header_->payload_size() <= kChunkBytes) small_.Resize(header_->payload_size());
    return absl::OkStatus();
  }

  absl::StatusOr<std::byte*> Room(size_t bytes) override {
    if (!header_) return OutOfOrder("payload came before a header");
    if (payload().size() != header_->payload_size()) {
      return OutOfOrder("a large report must send its header in a part of its own");
    }
    if (bytes > header_->payload_size() - received_) {
      return OutOfOrder(
          absl::StrCat("payload is longer than payload_size, ", header_->payload_size(), " bytes"));
    }
    std::byte* room = payload().data() + received_;
    received_ += bytes;
    return room;
  }

 private:
  Buffer& payload() { return large_ ? *large_ : small_; }

  void ReadOn() {
    if (header_ && !alarm_) StartClock();
    MutexLock lock(&mu_);
    if (expired_) return FinishOnce(ToGrpc(TooSlow()));
    reading_ = true;
    HandOver(this);
    StartRead(&in_);
  }

  // A report that does not come in one message must not take for ever.
  void StartClock() {
    alarm_ = std::make_unique<grpc::Alarm>();
    std::function<void(bool)> ring = [self = self_](bool rang) {
      TakeOver(&clocks_);
      if (rang) self->OnAlarm();
    };
    HandOver(&clocks_);
    alarm_->Set(absl::ToChronoTime(absl::Now() + engine_.upload_time()), std::move(ring));
  }

  void OnAlarm() {
    MutexLock lock(&mu_);
    expired_ = true;
    if (reading_) FinishOnce(ToGrpc(TooSlow()));
  }

  absl::Status TooSlow() {
    const absl::Status status = WithReason(
        absl::DeadlineExceededError(absl::StrCat(
            "the report took longer than limits.upload_seconds, ",
            absl::ToDoubleSeconds(engine_.upload_time()), "; send it faster or raise the limit")),
        "slow_upload");
    engine_.CountRefusal(status);
    return status;
  }

  void Process() {
    const absl::Status parsed = ParsePart(in_, *this);
    in_.Clear();
    if (!parsed.ok()) return End(parsed);
    if (!header_) return ReadOn();
    if (received_ == header_->payload_size()) return Complete();
    if (payload().size() == header_->payload_size()) return ReadOn();
    AwaitStaging();
  }

  // The header of a large report is here; its payload is read when there is room.
  void AwaitStaging() {
    std::unique_ptr<Buffer> buffer;
    {
      MutexLock lock(&mu_);
      buffer = staging_.Take(
          header_->payload_size(),
          [self = self_](std::unique_ptr<Buffer> later) { self->OnGranted(std::move(later)); });
      waiting_ = !buffer;
      if (waiting_ && cancelled_) FinishOnce(grpc::Status::CANCELLED);
    }
    if (buffer) ReadInto(std::move(buffer));
  }

  void OnGranted(std::unique_ptr<Buffer> buffer) {
    bool gone = false;
    {
      MutexLock lock(&mu_);
      waiting_ = false;
      gone = finished_;
    }
    if (gone) return staging_.Return(std::move(buffer));
    ReadInto(std::move(buffer));
  }

  void ReadInto(std::unique_ptr<Buffer> buffer) {
    buffer->Resize(header_->payload_size());
    large_ = std::move(buffer);
    ReadOn();
  }

  void Complete() {
    const absl::StatusOr<v1::Receipt> receipt =
        engine_.Submit(*header_, {payload().data(), payload().size()});
    const bool quiet = header_->without_receipt();
    header_.reset();
    alarm_.reset();
    if (large_) staging_.Return(std::move(large_));
    if (!receipt.ok()) return End(receipt.status());
    if (quiet) return ReadOn();
    const grpc::Slice bytes(receipt->SerializeAsString());
    out_ = ByteBuffer(&bytes, 1);
    HandOver(this);
    StartWrite(&out_);
  }

  void End(const absl::Status& status) {
    engine_.CountRefusal(status);
    MutexLock lock(&mu_);
    FinishOnce(ToGrpc(status));
  }
  void FinishOnce(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (finished_) return;
    finished_ = true;
    HandOver(this);
    Finish(status);
  }

  static inline char clocks_ = 0;  // under this name functions go over to the clock's thread
  Engine& engine_;
  Staging& staging_;
  Visit visit_;
  std::shared_ptr<SubmitStream> self_;
  // Touched by one callback at a time.
  ByteBuffer in_;
  ByteBuffer out_;
  std::optional<v1::ReportHeader> header_;
  Buffer small_;
  std::unique_ptr<Buffer> large_;
  size_t received_ = 0;
  std::unique_ptr<grpc::Alarm> alarm_;  // of a report that comes in several messages

  Mutex mu_;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool expired_ ABSL_GUARDED_BY(mu_) = false;
  bool waiting_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

grpc::ServerBidiReactor<ByteBuffer, ByteBuffer>* StartSubmit(Engine& engine, Staging& staging,
                                                             Visit visit) {
  return SubmitStream::Start(engine, staging, std::move(visit));
}

}  // namespace leeway
