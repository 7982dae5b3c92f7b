#include "server/service.h"

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <deque>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/reason.h"
#include "common/status.h"
#include "common/wire.h"
#include "proto/federation.grpc.pb.h"
#include "server/staging.h"

namespace leeway {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;

// Two uploads can arrive while a third is being folded.
constexpr size_t kStagingBuffers = 3;
constexpr size_t kMemoryQuota = size_t{64} << 20;

template <typename Message>
absl::StatusOr<Message> Decode(const ByteBuffer& bytes, absl::string_view what) {
  ByteBuffer view = bytes;
  Message message;
  if (!grpc::SerializationTraits<Message>::Deserialize(&view, &message).ok()) {
    return WithReason(absl::InvalidArgumentError(absl::StrCat("request is not a ", what)),
                      "malformed");
  }
  return message;
}

template <typename Message>
ByteBuffer Encode(const Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return ByteBuffer(&slice, 1);
}

absl::Status OutOfOrder(absl::string_view what) {
  return WithReason(absl::InvalidArgumentError(what), "chunk_order");
}

// Ends a call at once with a status.
template <typename Reactor>
class Refusal : public Reactor {
 public:
  explicit Refusal(const absl::Status& status) {
    HandOver(this);
    this->Finish(ToGrpc(status));
  }
  void OnDone() override {
    TakeOver(this);
    delete this;
  }
};

// ---------------------------------------------------------------- Join
// One session's order stream. The engine holds it as an OrderSink; gRPC calls it
// as a reactor; it lives until both have let go.
class JoinStream : public grpc::ServerWriteReactor<ByteBuffer>,
                   public OrderSink,
                   public std::enable_shared_from_this<JoinStream> {
 public:
  static JoinStream* Start(Engine& engine, Visit visit, const v1::JoinRequest& request) {
    auto stream = std::make_shared<JoinStream>(engine, std::move(visit));
    stream->self_ = stream;
    absl::StatusOr<SessionId> session = engine.Join(request, stream);
    if (!session.ok()) {
      engine.CountRefusal(session.status());
      stream->Close(session.status());
    } else {
      MutexLock lock(&stream->mu_);
      stream->session_ = *session;
    }
    return stream.get();
  }

  JoinStream(Engine& engine, Visit visit) : engine_(engine), visit_(std::move(visit)) {}

  void Send(const grpc::Slice& common, const v1::Order& own) override {
    const grpc::Slice slices[] = {common, grpc::Slice(own.SerializeAsString())};
    MutexLock lock(&mu_);
    queue_.emplace_back(slices, 2);
    Pump();
  }

  void Close(const absl::Status& status) override {
    MutexLock lock(&mu_);
    if (!closing_) status_ = ToGrpc(status);
    closing_ = true;
    Pump();
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mu_);
    writing_ = false;
    if (!ok) Abandon();
    Pump();
  }

  void OnCancel() override {
    MutexLock lock(&mu_);
    Abandon();
    Pump();
  }

  void OnDone() override {
    SessionId session = 0;
    {
      MutexLock lock(&mu_);
      session = session_;
    }
    TakeOver(this);
    engine_.Leave(session);
    std::shared_ptr<JoinStream> self = std::move(self_);  // dies here, or with the engine's
  }

 private:
  void Abandon() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    queue_.clear();
    closing_ = true;
  }
  // Starts the next write, or finishes when there is none and we are closing.
  void Pump() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || finished_) return;
    if (!queue_.empty()) {
      current_ = std::move(queue_.front());
      queue_.pop_front();
      writing_ = true;
      StartWrite(&current_);
    } else if (closing_) {
      finished_ = true;
      HandOver(this);
      Finish(status_);
    }
  }

  Engine& engine_;
  const Visit visit_;
  std::shared_ptr<JoinStream> self_;
  Mutex mu_;
  SessionId session_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<ByteBuffer> queue_ ABSL_GUARDED_BY(mu_);
  ByteBuffer current_;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mu_);
};

// ---------------------------------------------------------------- Fetch
class FetchStream : public grpc::ServerWriteReactor<ByteBuffer> {
 public:
  FetchStream(Visit visit, grpc::Slice file, uint64_t offset)
      : visit_(std::move(visit)), file_(std::move(file)), offset_(offset) {
    Next();
  }
  void OnWriteDone(bool ok) override {
    TakeOver(this);
    if (!ok) return Finish(grpc::Status::CANCELLED);
    Next();
  }
  void OnDone() override {
    TakeOver(this);
    delete this;
  }

 private:
  void Next() {
    if (offset_ >= file_.size()) {
      HandOver(this);
      return Finish(grpc::Status::OK);
    }
    const size_t size = std::min<size_t>(kChunkBytes, file_.size() - offset_);
    chunk_ = EncodeChunk(file_, offset_, size);
    offset_ += size;
    HandOver(this);
    StartWrite(&chunk_);
  }

  const Visit visit_;
  grpc::Slice file_;
  size_t offset_;
  ByteBuffer chunk_;
};

// ---------------------------------------------------------------- Submit
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
    out_ = Encode(*receipt);
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

// ---------------------------------------------------------------- Observe
class ObserveStream : public grpc::ServerWriteReactor<v1::Observation> {
 public:
  ObserveStream(Engine& engine, Visit visit, uint64_t after_round)
      : engine_(engine), visit_(std::move(visit)), round_(after_round) {
    unsubscribe_ = engine_.Subscribe([this] { OnChange(); });
    OnChange();
  }
  void OnWriteDone(bool ok) override {
    MutexLock lock(&mu_);
    writing_ = false;
    if (!ok || final_) return FinishOnce(ok ? grpc::Status::OK : grpc::Status::CANCELLED);
    Pump();
  }
  void OnCancel() override {
    MutexLock lock(&mu_);
    if (!writing_) FinishOnce(grpc::Status::CANCELLED);
    cancelled_ = true;
  }
  void OnDone() override {
    TakeOver(this);
    { MutexLock lock(&mu_); }  // the last callback has let go of it
    unsubscribe_();
    delete this;
  }

 private:
  void OnChange() {
    MutexLock lock(&mu_);
    changed_ = true;
    Pump();
  }
  // Whatever is new since the last message goes into the next one, so a slow
  // observer costs nothing but its own delay.
  void Pump() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || finished_ || cancelled_ || !changed_) return;
    changed_ = false;
    absl::StatusOr<v1::Observation> news = engine_.Observe(round_, event_);
    if (!news.ok()) return FinishOnce(ToGrpc(news.status()));
    out_ = *std::move(news);
    if (!out_.rounds().empty()) round_ = out_.rounds().rbegin()->round();
    if (!out_.events().empty()) event_ = out_.events().rbegin()->sequence();
    final_ = out_.progress().state() == v1::DONE || out_.progress().state() == v1::FAILED;
    writing_ = true;
    StartWrite(&out_);
  }
  void FinishOnce(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (finished_) return;
    finished_ = true;
    HandOver(this);
    Finish(status);
  }

  Engine& engine_;
  const Visit visit_;
  std::function<void()> unsubscribe_;
  Mutex mu_;
  uint64_t round_ ABSL_GUARDED_BY(mu_);
  uint64_t event_ ABSL_GUARDED_BY(mu_) = 0;
  v1::Observation out_;
  bool changed_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool final_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

// Bytes in and out except for Observe: payloads are not copied through messages.
using Methods = v1::Federation::WithRawCallbackMethod_Join<
    v1::Federation::WithRawCallbackMethod_Fetch<v1::Federation::WithRawCallbackMethod_Submit<
        v1::Federation::WithCallbackMethod_Observe<v1::Federation::Service>>>>;

class FederationService : public Methods {
 public:
  FederationService(Engine& engine, std::unique_ptr<Gate> gate)
      : engine_(engine), gate_(std::move(gate)), staging_(kStagingBuffers) {}

  grpc::ServerWriteReactor<ByteBuffer>* Join(CallbackServerContext* context,
                                             const ByteBuffer* request) override {
    absl::StatusOr<Visit> visit = gate_->Enter(*context);
    if (!visit.ok()) return Refuse<grpc::ServerWriteReactor<ByteBuffer>>(visit.status());
    absl::StatusOr<v1::JoinRequest> join = Decode<v1::JoinRequest>(*request, "JoinRequest");
    if (!join.ok()) return Refuse<grpc::ServerWriteReactor<ByteBuffer>>(join.status());
    const absl::Status allowed = visit->identity().MayJoin(*join);
    if (!allowed.ok()) return Refuse<grpc::ServerWriteReactor<ByteBuffer>>(allowed);
    return JoinStream::Start(engine_, *std::move(visit), *join);
  }

  grpc::ServerWriteReactor<ByteBuffer>* Fetch(CallbackServerContext* context,
                                              const ByteBuffer* request) override {
    absl::StatusOr<Visit> visit = gate_->Enter(*context);
    if (!visit.ok()) return Refuse<grpc::ServerWriteReactor<ByteBuffer>>(visit.status());
    absl::StatusOr<v1::FetchRequest> fetch = Decode<v1::FetchRequest>(*request, "FetchRequest");
    if (!fetch.ok()) return Refuse<grpc::ServerWriteReactor<ByteBuffer>>(fetch.status());
    absl::StatusOr<grpc::Slice> file = engine_.FindModel(fetch->sha256());
    if (!file.ok()) return Refuse<grpc::ServerWriteReactor<ByteBuffer>>(file.status());
    return new FetchStream(*std::move(visit), *std::move(file), fetch->offset());
  }

  grpc::ServerBidiReactor<ByteBuffer, ByteBuffer>* Submit(CallbackServerContext* context) override {
    absl::StatusOr<Visit> visit = gate_->Enter(*context);
    if (!visit.ok()) {
      return Refuse<grpc::ServerBidiReactor<ByteBuffer, ByteBuffer>>(visit.status());
    }
    return SubmitStream::Start(engine_, staging_, *std::move(visit));
  }

  grpc::ServerWriteReactor<v1::Observation>* Observe(CallbackServerContext* context,
                                                     const v1::ObserveRequest* request) override {
    absl::StatusOr<Visit> visit = gate_->Enter(*context);
    if (!visit.ok()) return Refuse<grpc::ServerWriteReactor<v1::Observation>>(visit.status());
    return new ObserveStream(engine_, *std::move(visit), request->after_round());
  }

 private:
  template <typename Reactor>
  Reactor* Refuse(const absl::Status& status) {
    engine_.CountRefusal(status);
    return new Refusal<Reactor>(status);
  }

  Engine& engine_;
  const std::unique_ptr<Gate> gate_;
  Staging staging_;
};

}  // namespace

void LimitResources(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(kMaxMessageBytes));
  // A second server on the same port must fail, not share it.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 20'000);
  builder.AddChannelArgument(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1);
  // Memory must not grow with the number of connections: no growing windows, and
  // read buffers that shrink when many are in use (docs/performance.md).
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  grpc::ResourceQuota quota("leeway-server");
  quota.Resize(kMemoryQuota);
  builder.SetResourceQuota(quota);
}

std::unique_ptr<grpc::Service> MakeService(Engine& engine, std::unique_ptr<Gate> gate) {
  return std::make_unique<FederationService>(engine, std::move(gate));
}

}  // namespace leeway
