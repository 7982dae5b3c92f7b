#include "server/service.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <deque>

#include "absl/strings/str_cat.h"
#include "common/reason.h"
#include "common/wire.h"
#include "proto/federation.grpc.pb.h"
#include "server/submit_stream.h"

namespace leeway {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;

// Two uploads can arrive while a third is being folded.
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
      : engine_(engine), gate_(std::move(gate)) {}

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
    return StartSubmit(engine_, staging_, *std::move(visit));
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

class UnknownMethods : public grpc::CallbackGenericService {
 public:
  explicit UnknownMethods(Engine& engine) : engine_(engine) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    const absl::Status status = WithReason(
        absl::UnimplementedError(absl::StrCat(
            "method ", context->method(),
            " does not exist; use a client of this server's version or proto/federation.proto")),
        "unknown_method");
    engine_.CountRefusal(status);
    return new Refusal<grpc::ServerGenericBidiReactor>(status);
  }

 private:
  Engine& engine_;
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

std::unique_ptr<grpc::CallbackGenericService> MakeUnknownMethods(Engine& engine) {
  return std::make_unique<UnknownMethods>(engine);
}

}  // namespace leeway
