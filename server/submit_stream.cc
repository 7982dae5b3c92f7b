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
      if (state_ == State::kFinished) return;
      state_ = state_ == State::kIdle ? State::kOpening : State::kHandling;
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
    if (state_ == State::kStaging || state_ == State::kResting) {
      FinishOnce(grpc::Status::CANCELLED);
    }
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
      if (state_ != State::kStaging) return buffer;
      // The round may have ended meanwhile.
      const absl::Status still = engine_.Admit(*header_);
      if (!still.ok()) {
        Interrupt(still);
        return buffer;
      }
      state_ = State::kHandling;
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
      buffer = Interrupt(WithReason(
          absl::AbortedError("the client has begun another upload, which takes this one's place"),
          "superseded"));
    }
    staging_.Return(std::move(buffer));
  }

 private:
  // Who has the stream, and what it waits for. "Its reader" is the callback that handles
  // the part that came: until it reads on, nobody else may end the stream.
  //
  //   kOpening   -> kIdle       at the start, and after a part without a header
  //              -> kReceiving  a header came, and its report is small and incomplete
  //              -> kStaging    the header of a large report came
  //              -> kCounting   a whole report came in one part
  //   kIdle      -> kOpening    a part came
  //   kStaging   -> kHandling   there is a buffer for the report
  //   kReceiving -> kHandling   a part came
  //   kHandling  -> kReceiving  the report goes on
  //              -> kCounting   that was its last part
  //   kCounting  -> kWriting    the report has a receipt
  //              -> kResting    it has none, and the process has nothing more to send
  //   kWriting   -> kIdle       the receipt is written
  //   kResting   -> kIdle       the next orders have left, or other reports are awaited
  //   any state  -> kFinished   the status is set; only gRPC's OnDone is still to come:
  //     by the stream's own callbacks when a part, a report or the connection is at fault
  //     or the client has sent its last; by others (the clock, the client's newer upload,
  //     a cancelled call) in kReceiving, kStaging and kResting
  enum class State {
    kOpening,    // its reader has it; no report has begun
    kIdle,       // a read is under way; no report has begun
    kStaging,    // a large report waits for a buffer; gRPC has nothing under way
    kReceiving,  // a read is under way for a part of the report; its clock runs
    kHandling,   // its reader has it; a report has begun
    kCounting,   // its reader has it; the report is complete and the engine counts it
    kWriting,    // the receipt is being written
    kResting,    // nothing is awaited before the next orders; gRPC has nothing under way
    kFinished
  };

  Buffer& payload() { return large_ ? *large_ : small_; }

  void ReadOn() {
    MutexLock lock(&mu_);
    if (state_ == State::kFinished) return;  // it was cancelled while it rested
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
    state_ = header_ ? State::kReceiving : State::kIdle;
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
      if (!alarm_ || state_ == State::kFinished) return;  // its report has just ended
      // Between two reads the report is its reader's.
      const absl::Status status = state_ == State::kReceiving ? CheckProgress() : absl::OkStatus();
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
    if (state_ == State::kHandling) {  // its reader ends it, unless that was the last part
      interrupted_ = status;
      return nullptr;
    }
    if (state_ != State::kReceiving && state_ != State::kStaging) return nullptr;  // just ended
    engine_.CountRefusal(status);
    FinishOnce(ToGrpc(status));
    return std::move(large_);
  }

  void Process() {
    visit_.CountMessage(in_.Length());
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
      state_ = State::kStaging;
    }
    staging_.Enter(*header_, self_);
    std::unique_ptr<Buffer> buffer;
    {
      MutexLock lock(&mu_);
      // Cancelled, or the client has begun another meanwhile.
      if (state_ == State::kFinished) return;
      buffer = staging_.Take(header_->payload_size(), self_);
      if (buffer) state_ = State::kHandling;
    }
    if (buffer) ReadInto(std::move(buffer));
  }

  void ReadInto(std::unique_ptr<Buffer> buffer) {
    buffer->Resize(header_->payload_size());
    large_ = std::move(buffer);
    ReadOn();
  }

  void Complete() {
    {
      MutexLock lock(&mu_);
      state_ = State::kCounting;
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
    MutexLock lock(&mu_);
    state_ = State::kWriting;
    HandOver(this);
    StartWrite(&out_);
  }

  // As soon as a read waits, gRPC tells the client that there is room for more, and
  // wakes it for that; with the next order it is awake anyway.
  void Rest(const v1::ReportHeader& done) {
    {
      MutexLock lock(&mu_);
      if (cancelled_) return FinishOnce(grpc::Status::CANCELLED);
      state_ = State::kResting;
    }
    if (!engine_.Rest(done, self_)) ReadOn();
  }

  void End(const absl::Status& status) {
    engine_.CountRefusal(status);
    MutexLock lock(&mu_);
    FinishOnce(ToGrpc(status));
  }
  void FinishOnce(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (state_ == State::kFinished) return;
    state_ = State::kFinished;
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

  // With mu_ held, and in the states kReceiving and kStaging, other threads may look at
  // the above.
  Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kOpening;
  // Of a report that comes in several messages: its clock, when it was started, when
  // and to where a whole part more had come, and why its reader is to end it.
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mu_);
  absl::Time begun_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Time moved_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  size_t moved_to_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status interrupted_ ABSL_GUARDED_BY(mu_);
  // The call is gone. This may be heard in any state; who would then wait for something
  // other than gRPC, which does not come to tell again, finishes instead.
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

grpc::ServerBidiReactor<ByteBuffer, ByteBuffer>* StartSubmit(Engine& engine, Staging& staging,
                                                             Visit visit) {
  return SubmitStream::Start(engine, staging, std::move(visit));
}

}  // namespace leeway
