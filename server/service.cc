#include "server/service.h"

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/reason.h"
#include "common/status.h"
#include "common/utf8.h"
#include "common/wire.h"
#include "proto/federation.grpc.pb.h"
#include "server/observe_stream.h"
#include "server/submit_stream.h"

namespace leeway {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;

// For gRPC's read buffers, of all connections together (docs/performance.md).
constexpr size_t kMemoryQuota = size_t{48} << 20;

constexpr int kReflectionThreads = 8;

constexpr size_t kMostNameBytes = 200;

// How soon a certificate that was revoked ends its holder's streams.
constexpr absl::Duration kRecheck = absl::Seconds(1);

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

// How the log names a process: by its first client, and by its own name.
std::string NameOf(const v1::JoinRequest& request) {
  const std::string client = request.clients_size() > 0 ? request.clients(0).id() : "";
  return OneLine(
      absl::StrCat(client, request.clients_size() > 1 ? ", ..." : "", " (", request.host(), ")"),
      kMostNameBytes);
}

// ---------------------------------------------------------------- Join
// One session's order stream. The engine holds it as an OrderSink; gRPC calls it
// as a reactor; it lives until both have let go.
class JoinStream : public grpc::ServerWriteReactor<ByteBuffer>,
                   public OrderSink,
                   public std::enable_shared_from_this<JoinStream> {
 public:
  static JoinStream* Start(Engine& engine, CallbackServerContext& context, Visit visit,
                           const v1::JoinRequest& request) {
    auto stream = std::make_shared<JoinStream>(engine, context, std::move(visit), NameOf(request));
    stream->self_ = stream;
    absl::StatusOr<SessionId> session = engine.Join(request, stream);
    if (!session.ok()) {
      engine.RefuseJoin(stream->process_, session.status());
      stream->Close(session.status());
    } else {
      MutexLock lock(&stream->mu_);
      stream->session_ = *session;
    }
    return stream.get();
  }

  JoinStream(Engine& engine, CallbackServerContext& context, Visit visit, std::string process)
      : engine_(engine),
        context_(context),
        visit_(std::move(visit)),
        process_(std::move(process)) {}

  void Send(const grpc::Slice& common, const v1::Order& own) override {
    const grpc::Slice slices[] = {common, grpc::Slice(own.SerializeAsString())};
    MutexLock lock(&mu_);
    if (state_ != State::kIdle && state_ != State::kWriting) return;
    if (queue_.size() >= kMostUnread) {
      // When it joins again it hears of what is to be done now. The write under way
      // would wait for ever; that it was cancelled we hear on another thread.
      refusal_ = WithReason(absl::ResourceExhaustedError("the process does not read its orders"),
                            "unread_orders");
      Abandon();
      return context_.TryCancel();
    }
    queue_.emplace_back(slices, 2);
    if (state_ == State::kIdle) Write(State::kWriting);
  }

  void Close(const absl::Status& status) override {
    MutexLock lock(&mu_);
    if (state_ != State::kIdle && state_ != State::kWriting) return;
    status_ = ToGrpc(status);
    End();
  }

  // Ends the stream of a certificate that has been revoked or has expired meanwhile, with the
  // orders that it has not read.
  void Recheck() {
    const absl::Status status = visit_.StillWelcome();
    if (status.ok()) return;
    MutexLock lock(&mu_);
    if (state_ != State::kIdle && state_ != State::kWriting) return;
    const bool writing = state_ == State::kWriting;
    status_ = ToGrpc(status);
    refusal_ = status;
    Abandon();
    // It may never read what is being written.
    if (writing) context_.TryCancel();
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mu_);
    if (!ok) Abandon();
    if (!queue_.empty()) return Write(state_);
    if (state_ == State::kEnding) return FinishNow();
    state_ = State::kIdle;
  }

  void OnCancel() override {
    MutexLock lock(&mu_);
    if (state_ != State::kFinished) Abandon();
  }

  void OnDone() override {
    SessionId session = 0;
    absl::Status refusal;
    {
      MutexLock lock(&mu_);
      session = session_;
      refusal = refusal_;
    }
    TakeOver(this);
    if (absl::IsUnauthenticated(refusal)) {
      engine_.RefuseJoin(process_, refusal);  // it was let in, and is no more
    } else {
      engine_.CountRefusal(refusal);
    }
    engine_.Leave(session, process_);
    std::shared_ptr<JoinStream> self = std::move(self_);  // dies here, or with the engine's
  }

 private:
  //   kIdle    -> kWriting   an order is to be sent
  //            -> kFinished  the engine closes the stream, or the call is cancelled
  //   kWriting -> kIdle      that was the last order for now
  //            -> kEnding    closed or cancelled, or the process does not read its orders
  //   kEnding  -> kFinished  what was to be sent before the end is sent, or cannot be
  enum class State {
    kIdle,     // every order is written
    kWriting,  // one is being written, more may follow
    kEnding,   // one is being written; what the queue holds follows, and then the end
    kFinished  // the status is set; only gRPC's OnDone is still to come
  };

  void Write(State state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    state_ = state;
    current_ = std::move(queue_.front());
    queue_.pop_front();
    StartWrite(&current_);
  }
  // Without what has not been sent.
  void Abandon() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    queue_.clear();
    End();
  }
  // After what the queue holds.
  void End() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (state_ == State::kIdle) return FinishNow();
    state_ = State::kEnding;
  }
  void FinishNow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    state_ = State::kFinished;
    HandOver(this);
    Finish(status_);
  }

  // Orders that may wait for a process to read those before them, which are as many as
  // its window holds. A client that is busy for many rounds may have this happen.
  static constexpr size_t kMostUnread = 16;

  Engine& engine_;
  CallbackServerContext& context_;  // lives until OnDone, so in every state before kFinished
  const Visit visit_;
  const std::string process_;  // as the log names it
  std::shared_ptr<JoinStream> self_;
  Mutex mu_;
  SessionId session_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<ByteBuffer> queue_ ABSL_GUARDED_BY(mu_);
  ByteBuffer current_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kIdle;
  grpc::Status status_ ABSL_GUARDED_BY(mu_);
  absl::Status refusal_ ABSL_GUARDED_BY(mu_);  // why we ended it; counted at the end
};

// ---------------------------------------------------------------- Fetch
// A model on its way. It keeps the model in memory, so it must move on: one that has not
// within limits.upload_seconds is at an end.
class FetchStream : public grpc::ServerWriteReactor<ByteBuffer> {
 public:
  static FetchStream* Start(Engine& engine, CallbackServerContext& context, Visit visit,
                            grpc::Slice file, uint64_t offset) {
    auto stream =
        std::make_shared<FetchStream>(engine, context, std::move(visit), std::move(file), offset);
    stream->self_ = stream;
    MutexLock lock(&stream->mu_);
    stream->StartClock();
    stream->Next();
    return stream.get();
  }

  FetchStream(Engine& engine, CallbackServerContext& context, Visit visit, grpc::Slice file,
              uint64_t offset)
      : engine_(engine),
        context_(context),
        visit_(std::move(visit)),
        file_(std::move(file)),
        offset_(offset) {}
  ~FetchStream() override { TakeOver(this); }  // from its clock, too

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mu_);
    if (!ok) return Finish(grpc::Status::CANCELLED);
    Next();
  }
  void OnDone() override {
    std::shared_ptr<FetchStream> self;  // its clock may hold it too
    bool stalled = false;
    {
      MutexLock lock(&mu_);
      self = std::move(self_);
      stalled = state_ == State::kStalled;
      state_ = State::kDone;
      clock_.reset();
    }
    if (!stalled) return;
    engine_.CountRefusal(
        WithReason(absl::DeadlineExceededError("the model was not read for limits.upload_seconds"),
                   "slow_fetch"));
  }

 private:
  //   kSending -> kStalled  nothing moved while the clock ran: the call is cancelled
  //   kSending -> kDone     gRPC is done with it: the model is sent, or the call is gone
  //   kStalled -> kDone
  enum class State { kSending, kStalled, kDone };

  void Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (offset_ >= file_.size()) return Finish(grpc::Status::OK);
    const size_t size = std::min<size_t>(kChunkBytes, file_.size() - offset_);
    chunk_ = EncodeChunk(file_, offset_, size);
    offset_ += size;
    StartWrite(&chunk_);
  }

  void StartClock() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    seen_ = offset_;
    clock_ = std::make_unique<grpc::Alarm>();
    std::function<void(bool)> ring = [self = self_](bool rang) {
      TakeOver(&clocks_);
      if (rang) self->OnClock();
      HandOver(self.get());
    };
    HandOver(&clocks_);
    clock_->Set(absl::ToChronoTime(absl::Now() + engine_.upload_time()), std::move(ring));
  }
  void OnClock() {
    MutexLock lock(&mu_);
    if (state_ != State::kSending) return;
    if (offset_ != seen_) return StartClock();
    state_ = State::kStalled;
    context_.TryCancel();  // the write under way fails, on another thread
  }

  static inline char clocks_ = 0;  // under this name functions go over to the clock's thread
  Engine& engine_;
  CallbackServerContext& context_;  // lives until OnDone
  const Visit visit_;
  const grpc::Slice file_;
  std::shared_ptr<FetchStream> self_;
  Mutex mu_;
  size_t offset_ ABSL_GUARDED_BY(mu_);
  size_t seen_ ABSL_GUARDED_BY(mu_) = 0;  // offset_ when the clock was started
  ByteBuffer chunk_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<grpc::Alarm> clock_ ABSL_GUARDED_BY(mu_);
  State state_ ABSL_GUARDED_BY(mu_) = State::kSending;
};

// Bytes in and out except for Observe: payloads are not copied through messages.
using Methods =
    v1::Federation::WithRawCallbackMethod_Describe<v1::Federation::WithRawCallbackMethod_Join<
        v1::Federation::WithRawCallbackMethod_Fetch<v1::Federation::WithRawCallbackMethod_Submit<
            v1::Federation::WithCallbackMethod_Observe<v1::Federation::Service>>>>>;

class FederationService : public Methods {
 public:
  FederationService(Engine& engine, std::unique_ptr<Gate> gate)
      : engine_(engine), gate_(std::move(gate)), staging_(*engine.holdings()) {
    if (gate_->certificates()) rechecks_ = std::thread([this] { RecheckNowAndThen(); });
  }
  ~FederationService() override {
    {
      MutexLock lock(&mu_);
      stopping_ = true;
      changed_.SignalAll();
    }
    if (rechecks_.joinable()) rechecks_.join();
  }

  grpc::ServerUnaryReactor* Describe(CallbackServerContext* context, const ByteBuffer* request,
                                     ByteBuffer* response) override {
    std::string process = context->peer();
    absl::StatusOr<Visit> visit = gate_->Enter(*context);
    const absl::StatusOr<v1::JoinRequest> join = CheckedJoin(visit, *request, process);
    const absl::StatusOr<v1::Welcome> welcome =
        join.ok() ? engine_.Describe(*join) : absl::StatusOr<v1::Welcome>(join.status());
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    if (welcome.ok()) {
      const grpc::Slice bytes(welcome->SerializeAsString());
      *response = ByteBuffer(&bytes, 1);
    } else {
      engine_.RefuseJoin(process, welcome.status());
    }
    reactor->Finish(ToGrpc(welcome.status()));
    return reactor;
  }

  grpc::ServerWriteReactor<ByteBuffer>* Join(CallbackServerContext* context,
                                             const ByteBuffer* request) override {
    std::string process = context->peer();
    absl::StatusOr<Visit> visit = gate_->Enter(*context);
    const absl::StatusOr<v1::JoinRequest> join = CheckedJoin(visit, *request, process);
    if (!join.ok()) return RefuseJoin(process, join.status());
    JoinStream* const stream = JoinStream::Start(engine_, *context, *std::move(visit), *join);
    if (gate_->certificates()) {
      MutexLock lock(&mu_);
      joined_.push_back(stream->weak_from_this());
    }
    return stream;
  }

  grpc::ServerWriteReactor<ByteBuffer>* Fetch(CallbackServerContext* context,
                                              const ByteBuffer* request) override {
    absl::StatusOr<Visit> visit = gate_->Enter(*context);
    if (!visit.ok()) return Refuse<grpc::ServerWriteReactor<ByteBuffer>>(visit.status());
    const absl::Status allowed = visit->identity().MayFetch();
    if (!allowed.ok()) return Refuse<grpc::ServerWriteReactor<ByteBuffer>>(allowed);
    absl::StatusOr<v1::FetchRequest> fetch = Decode<v1::FetchRequest>(*request, "FetchRequest");
    if (!fetch.ok()) return Refuse<grpc::ServerWriteReactor<ByteBuffer>>(fetch.status());
    absl::StatusOr<grpc::Slice> file = engine_.FindModel(fetch->sha256());
    if (!file.ok()) return Refuse<grpc::ServerWriteReactor<ByteBuffer>>(file.status());
    return FetchStream::Start(engine_, *context, *std::move(visit), *std::move(file),
                              fetch->offset());
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
    const auto stream = StartObserve(engine_, *std::move(visit), request->after_round());
    if (!stream.ok()) return Refuse<grpc::ServerWriteReactor<v1::Observation>>(stream.status());
    return *stream;
  }

 private:
  template <typename Reactor>
  Reactor* Refuse(const absl::Status& status) {
    engine_.CountRefusal(status);
    return new Refusal<Reactor>(status);
  }

  // A request by somebody who may make it. Sets how the log names them, as soon as that is
  // known.
  static absl::StatusOr<v1::JoinRequest> CheckedJoin(const absl::StatusOr<Visit>& visit,
                                                     const ByteBuffer& request,
                                                     std::string& process) {
    LEEWAY_RETURN_IF_ERROR(visit.status());
    visit->CountMessage(request.Length());
    LEEWAY_ASSIGN_OR_RETURN(v1::JoinRequest join, ParseJoin(request));
    process = NameOf(join);
    LEEWAY_RETURN_IF_ERROR(visit->identity().MayJoin(join));
    return join;
  }

  grpc::ServerWriteReactor<ByteBuffer>* RefuseJoin(const std::string& process,
                                                   const absl::Status& status) {
    engine_.RefuseJoin(process, status);
    return new Refusal<grpc::ServerWriteReactor<ByteBuffer>>(status);
  }

  // A process that waits for orders makes no calls by which a revoked one would be noticed.
  void RecheckNowAndThen() {
    std::vector<std::weak_ptr<JoinStream>> streams;
    while (true) {
      {
        MutexLock lock(&mu_);
        std::erase_if(joined_, [](const auto& stream) { return stream.expired(); });
        if (!stopping_) changed_.WaitWithDeadline(&mu_, absl::Now() + kRecheck);
        if (stopping_) return;
        streams = joined_;
      }
      for (const std::weak_ptr<JoinStream>& stream : streams) {
        if (const std::shared_ptr<JoinStream> alive = stream.lock()) alive->Recheck();
      }
    }
  }

  Engine& engine_;
  const std::unique_ptr<Gate> gate_;
  Staging staging_;
  Mutex mu_;
  CondVar changed_ ABSL_GUARDED_BY(mu_);
  std::vector<std::weak_ptr<JoinStream>> joined_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread rechecks_;
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
  // Memory must not grow with the number of connections: no growing windows, little
  // taken in before it is asked for, and read buffers that shrink when many are in use
  // (docs/performance.md).
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 16 << 10);
  // More than the gate lets one caller have, so that it hears the gate's reason.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 2 * Gate::kCallsPerCaller);
  // Our own calls run on gRPC's callback threads, of which there are a few. Reflection
  // is the one service that takes a thread for every call.
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  grpc::ResourceQuota quota("leeway-server");
  quota.Resize(kMemoryQuota);
  quota.SetMaxThreads(kReflectionThreads);
  builder.SetResourceQuota(quota);
}

std::unique_ptr<grpc::Service> MakeService(Engine& engine, std::unique_ptr<Gate> gate) {
  return std::make_unique<FederationService>(engine, std::move(gate));
}

std::unique_ptr<grpc::CallbackGenericService> MakeUnknownMethods(Engine& engine) {
  return std::make_unique<UnknownMethods>(engine);
}

}  // namespace leeway
