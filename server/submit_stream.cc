#include "server/submit_stream.h"

#include <grpcpp/alarm.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/mutex.h"
#include "common/reason.h"
#include "common/status.h"
#include "common/wire.h"
#include "server/steady_time.h"

namespace leeway {
namespace {

using grpc::ByteBuffer;

// Between these an upload is looked at: is it fast enough, is its round still open?
constexpr absl::Duration kShortestLook = absl::Milliseconds(10);
constexpr absl::Duration kLongestLook = absl::Seconds(1);

// What a stream keeps for its next report of one message. There may be thousands of streams.
constexpr size_t kMostKept = size_t{64} << 10;

absl::Status OutOfOrder(absl::string_view what) {
  return WithReason(absl::InvalidArgumentError(what), "chunk_order");
}

// Reads reports one after the other. Callbacks of one stream come one at a time,
// except OnCancel, the clock, a granted staging buffer and a client's newer upload;
// mu_ orders those.
class SubmitStream : public grpc::ServerBidiReactor<ByteBuffer, ByteBuffer>,
                     public PayloadSink,
                     public RestingStream,
                     public Staging::Upload {
 public:
  static SubmitStream* Start(Engine& engine, Staging& staging, Visit visit) {
    auto stream = std::make_shared<SubmitStream>(engine, staging, std::move(visit));
    stream->self_ = stream;
    stream->ReadOn();
    return stream.get();
  }

  SubmitStream(Engine& engine, Staging& staging, Visit visit)
      : engine_(engine),
        staging_(staging),
        visit_(std::move(visit)),
        holdings_(engine.holdings()),
        small_(&holdings_->small_reports) {
    holdings_->streams.Add(0);
  }
  ~SubmitStream() override {
    TakeOver(this);  // from whoever held it, too
    holdings_->streams.Remove(0);
  }

  void OnReadDone(bool ok) override {
    TakeOver(this);
    {
      MutexLock lock(&mu_);
      reading_ = false;
      if (finished_) return;
    }
    if (ok) {
      Process();
      return HandOver(this);  // to OnDone, which comes after this
    }
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
    // A stream that waits for staging, or rests, has no read under way that would fail.
    if (waiting_ || resting_) FinishOnce(grpc::Status::CANCELLED);
  }
  void OnDone() override {
    TakeOver(this);
    const std::shared_ptr<SubmitStream> self = std::move(self_);  // others may hold it too
    std::unique_ptr<Buffer> buffer;
    {
      MutexLock lock(&mu_);  // an OnCancel has let go of it
      alarm_.reset();
      buffer = std::move(large_);
    }
    engine_.EndRest(this);
    const Visit ended = std::move(visit_);
    if (header_) staging_.Leave(*header_, self);
    staging_.Return(std::move(buffer));
  }

  // PayloadSink
  size_t MostNames() const override { return engine_.roster_size(); }
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

  // Staging::Upload
  std::unique_ptr<Buffer> OnGranted(std::unique_ptr<Buffer> buffer) override {
    {
      MutexLock lock(&mu_);
      if (finished_) return buffer;
      // The round may have ended meanwhile.
      const absl::Status still = engine_.Admit(*header_);
      if (!still.ok()) {
        Interrupt(still);
        return buffer;
      }
      Begin();
    }
    ReadInto(std::move(buffer));
    return nullptr;
  }

  // RestingStream
  void OnOrders() override { ReadOn(); }

  void OnSuperseded() override {
    std::unique_ptr<Buffer> buffer;
    {
      MutexLock lock(&mu_);
      if (!waiting_ && begun_ == absl::InfiniteFuture()) return;  // it has just ended
      buffer = Interrupt(WithReason(
          absl::AbortedError("the client has begun another upload, which takes this one's place"),
          "superseded"));
    }
    staging_.Return(std::move(buffer));
  }

 private:
  Buffer& payload() { return large_ ? *large_ : small_; }

  void ReadOn() {
    MutexLock lock(&mu_);
    if (std::exchange(resting_, false) && finished_) return;
    if (!interrupted_.ok()) {
      engine_.CountRefusal(interrupted_);
      return FinishOnce(ToGrpc(interrupted_));
    }
    if (header_ && !alarm_) {
      begun_ = moved_ = SteadyNow();
      moved_to_ = received_;
      StartClock();
    } else if (header_ && received_ >= moved_to_ + kChunkBytes) {
      moved_ = SteadyNow();
      moved_to_ = received_;
    }
    reading_ = true;
    HandOver(this);
    StartRead(&in_);
  }

  // A report that does not come in one message must not take for ever.
  void StartClock() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    alarm_ = std::make_unique<grpc::Alarm>();
    std::function<void(bool)> ring = [self = self_](bool rang) {
      TakeOver(&clocks_);
      if (rang) self->OnAlarm();
      HandOver(self.get());
    };
    HandOver(&clocks_);
    const absl::Duration left = begun_ + engine_.upload_time() - SteadyNow();
    const absl::Duration look = std::max(kShortestLook, std::min({left, patience(), kLongestLook}));
    alarm_->Set(absl::ToChronoTime(absl::Now() + look), std::move(ring));
  }

  void OnAlarm() {
    std::unique_ptr<Buffer> buffer;
    {
      MutexLock lock(&mu_);
      if (finished_ || begun_ == absl::InfiniteFuture()) return;
      // Between two reads the report is its reader's.
      const absl::Status status = reading_ ? CheckProgress() : absl::OkStatus();
      if (status.ok()) return StartClock();
      buffer = Interrupt(status);
    }
    staging_.Return(std::move(buffer));
  }

  // Is the upload fast enough, and its report still awaited?
  absl::Status CheckProgress() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const absl::Time now = SteadyNow();
    if (now >= begun_ + engine_.upload_time()) {
      return WithReason(
          absl::DeadlineExceededError(absl::StrCat(
              "the report took longer than limits.upload_seconds, ",
              absl::ToDoubleSeconds(engine_.upload_time()), "; send it faster or raise the limit")),
          "slow_upload");
    }
    if (large_ && now >= moved_ + patience() && staging_.wanted()) {
      return WithReason(
          absl::DeadlineExceededError(absl::StrCat(
              "less than ", kChunkBytes, " bytes came in ", absl::ToDoubleSeconds(patience()),
              " s, a twelfth of limits.upload_seconds, while other reports waited; send the "
              "report again, faster, or raise the limit")),
          "slow_upload");
    }
    return engine_.Admit(*header_);
  }
  // While others wait for its buffer, an upload must send a part of 1 MiB in this time:
  // with the default limit 10 s, a link of 100 KB/s.
  absl::Duration patience() const { return engine_.upload_time() / 12; }

  // Ends the report under way from outside of its reader; returns the buffer it held.
  std::unique_ptr<Buffer> Interrupt(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (finished_) return nullptr;
    if (!reading_ && !waiting_) {  // its reader ends it, unless that was the last part
      interrupted_ = status;
      return nullptr;
    }
    engine_.CountRefusal(status);
    FinishOnce(ToGrpc(status));
    return std::move(large_);
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
    {
      MutexLock lock(&mu_);
      if (cancelled_) return FinishOnce(grpc::Status::CANCELLED);
      waiting_ = true;
    }
    staging_.Enter(*header_, self_);
    std::unique_ptr<Buffer> buffer;
    {
      MutexLock lock(&mu_);
      if (finished_) return;  // cancelled, or the client has begun another meanwhile
      buffer = staging_.Take(header_->payload_size(), self_);
      if (buffer) Begin();
    }
    if (buffer) ReadInto(std::move(buffer));
  }

  void Begin() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    waiting_ = false;
    begun_ = SteadyNow();
  }

  void ReadInto(std::unique_ptr<Buffer> buffer) {
    buffer->Resize(header_->payload_size());
    large_ = std::move(buffer);
    ReadOn();
  }

  void Complete() {
    {
      MutexLock lock(&mu_);
      begun_ = absl::InfiniteFuture();
      alarm_.reset();
      interrupted_ = absl::OkStatus();
    }
    const absl::StatusOr<v1::Receipt> receipt =
        engine_.Submit(*header_, {payload().data(), payload().size()});
    const bool quiet = header_->without_receipt();
    if (large_) staging_.Leave(*header_, self_);
    const v1::ReportHeader done = *std::exchange(header_, std::nullopt);
    staging_.Return(std::move(large_));
    small_.Trim(kMostKept);
    if (!receipt.ok()) return End(receipt.status());
    if (quiet) return Rest(done);
    const grpc::Slice bytes(receipt->SerializeAsString());
    out_ = ByteBuffer(&bytes, 1);
    HandOver(this);
    StartWrite(&out_);
  }

  // As soon as a read waits, gRPC tells the client that there is room for more, and
  // wakes it for that; with the next order it is awake anyway.
  void Rest(const v1::ReportHeader& done) {
    {
      MutexLock lock(&mu_);
      if (cancelled_) return FinishOnce(grpc::Status::CANCELLED);
      resting_ = true;
    }
    if (!engine_.Rest(done, self_)) ReadOn();
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
  const std::shared_ptr<Holdings> holdings_;
  std::shared_ptr<SubmitStream> self_;
  // Touched by one callback at a time.
  ByteBuffer in_;
  ByteBuffer out_;
  std::optional<v1::ReportHeader> header_;
  Buffer small_;
  std::unique_ptr<Buffer> large_;
  size_t received_ = 0;

  // With mu_ held and reading_ or waiting_ set, other threads may look at the above.
  Mutex mu_;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool waiting_ ABSL_GUARDED_BY(mu_) = false;  // for a staging buffer
  bool resting_ ABSL_GUARDED_BY(mu_) = false;  // until the next orders
  // Of a report that comes in several messages: its clock, when it was started, when
  // and to where a whole part more had come, and why its reader is to end it.
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mu_);
  absl::Time begun_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  absl::Time moved_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  size_t moved_to_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status interrupted_ ABSL_GUARDED_BY(mu_);
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

grpc::ServerBidiReactor<ByteBuffer, ByteBuffer>* StartSubmit(Engine& engine, Staging& staging,
                                                             Visit visit) {
  return SubmitStream::Start(engine, staging, std::move(visit));
}

}  // namespace leeway
