#include "client/connection.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/model_fetch.h"
#include "client/raw_stream.h"
#include "common/failpoint.h"
#include "common/rng.h"
#include "common/status.h"
#include "common/wire.h"
#include "proto/federation.grpc.pb.h"

namespace leeway {
namespace {

constexpr char kJoinMethod[] = "/leeway.v1.Federation/Join";
constexpr char kSubmitMethod[] = "/leeway.v1.Federation/Submit";
constexpr int kResends = 3;  // of one report, when only its stream broke
constexpr absl::Duration kShortWork = absl::Milliseconds(20);

class Member {
 public:
  Member(Worker& worker, const ConnectionOptions& options)
      : worker_(worker),
        options_(options),
        channel_(MakeChannel(options)),
        models_(worker, channel_) {
    std::random_device random;
    instance_ = (uint64_t{random()} << 32) | random();
  }

  absl::Status Run() {
    absl::Time last_contact = absl::Now();
    Rng jitter(instance_, 0, 0, Purpose::kBackoff);
    for (int failures = 0;; ++failures) {
      const absl::Time began = absl::Now();
      absl::StatusOr<bool> finished = Session();
      if (finished.ok() && *finished) return absl::OkStatus();
      if (!finished.ok() && !IsTransient(finished.status())) return finished.status();
      if (joined_) {
        last_contact = absl::Now();
        failures = 0;
        absl::FPrintF(stderr, "leeway-client: connection lost; joining again\n");
      }
      if (absl::Now() - last_contact > options_.give_up) {
        return absl::UnavailableError(absl::StrCat(
            "no server at ", options_.server, " for ", absl::FormatDuration(options_.give_up), " (",
            finished.ok() ? "stream ended" : finished.status().message(),
            "); start leeway-server first, check --server and, with TLS, that both sides' "
            "certificates are of one authority, or wait longer with --give-up"));
      }
      // Exponential backoff with jitter, from 50 ms to 5 s.
      const double seconds = std::min(5.0, 0.05 * static_cast<double>(1 << std::min(failures, 7)));
      const absl::Duration pause = absl::Seconds(seconds * (0.5 + jitter.Uniform()));
      // Connecting goes on only while somebody waits for it: asleep, this thread would
      // let one attempt after the other run out of time.
      if (channel_->GetState(false) == GRPC_CHANNEL_READY) {
        absl::SleepFor(pause - std::min(pause, absl::Now() - began));
      } else {
        channel_->WaitForConnected(absl::ToChronoTime(absl::Now() + pause));
      }
    }
  }

 private:
  static std::shared_ptr<grpc::Channel> MakeChannel(const ConnectionOptions& options) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
    // Whatever its name says, this is the least time that one attempt is given, TLS
    // handshake included: with less, a busy machine never connects.
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5'000);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
    return grpc::CreateCustomChannel(options.server, options.credentials, arguments);
  }

  static bool IsTransient(const absl::Status& status) {
    return absl::IsUnavailable(status) || absl::IsCancelled(status) || absl::IsUnknown(status) ||
           absl::IsInternal(status) || absl::IsAborted(status) ||
           absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status);
  }

  // One Join stream. True: the run is over. False or a transient error: try again.
  // One thread and one queue serve orders and uploads, so a round costs this
  // process one wake-up.
  absl::StatusOr<bool> Session() {
    joined_ = false;
    CallQueue queue;
    RawStream join(channel_, kJoinMethod, queue);
    std::unique_ptr<RawStream> submit;
    v1::JoinRequest request = worker_.Hosted();
    request.set_oldest_version(kOldestProtocol);
    request.set_newest_version(kNewestProtocol);
    request.set_host(options_.name);
    request.set_instance(instance_);
    if (request.ByteSizeLong() > kMaxMessageBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "this process hosts ", worker_.clients(), " clients, whose names take more than ",
          kMaxMessageBytes, " bytes; share them among several processes"));
    }
    const grpc::Slice slice(request.SerializeAsString());
    if (join.Write(grpc::ByteBuffer(&slice, 1))) join.WritesDone();
    join.BeginRead();
    bool reading = true;
    // Only the newest order counts: a process that was busy while rounds went by
    // takes up the one that is open now.
    std::optional<v1::Order> newest;
    while (true) {
      if (!newest && !join.read_done()) {
        queue.Await();
      } else if (newest && !queue.Poll()) {
        const v1::Order order = *std::exchange(newest, std::nullopt);
        if (order.has_welcome()) LEEWAY_RETURN_IF_ERROR(Enter(order));
        if (order.finished()) return true;
        const absl::Time began = absl::Now();
        if (order.round() != 0) LEEWAY_RETURN_IF_ERROR(Do(order, queue, submit));
        busy_ = absl::Now() - began > kShortWork;
        if (!reading) {
          join.BeginRead();
          reading = true;
        }
      }
      if (reading && join.read_done()) {
        std::optional<grpc::ByteBuffer> message = join.TakeRead();
        if (!message) {
          if (newest && newest->finished()) return true;
          LEEWAY_RETURN_IF_ERROR(join.Finish());
          return false;
        }
        v1::Order order;
        if (!grpc::SerializationTraits<v1::Order>::Deserialize(&*message, &order).ok()) {
          return absl::InternalError("the server sent an order that cannot be read");
        }
        // The welcome must not be overtaken by the order that follows it.
        if (newest && newest->has_welcome()) {
          order.mutable_welcome()->Swap(newest->mutable_welcome());
        }
        // Clients that step in for others come in an order of their own.
        if (newest && newest->round() == order.round() && newest->attempt() == order.attempt()) {
          order.mutable_clients()->MergeFrom(newest->clients());
          order.mutable_groups()->MergeFrom(newest->groups());
          order.mutable_state_rounds()->MergeFrom(newest->state_rounds());
        }
        newest = std::move(order);
        // As soon as a read waits, gRPC tells the server that there is room for more,
        // and wakes it for that; after the report it is awake anyway.
        reading = busy_ || behind_;
        if (reading) join.BeginRead();
      }
      if (submit && submit->read_done()) {
        // Reports ask for no receipt, so what comes is the end.
        const absl::Status ended = submit->Finish();
        submit.reset();
        if ((IsTransient(ended) || absl::IsDataLoss(ended)) && ++resent_ <= kResends) {
          Send(queue, submit);
        } else if (absl::IsUnauthenticated(ended)) {
          return ended;  // our certificate was revoked
        } else if (IsTransient(ended) && !absl::IsDeadlineExceeded(ended)) {
          return ended;  // joining again brings the order again, when the server can
        } else if (!ended.ok()) {
          // The server has refused the report; the run and this process go on. It may
          // have come late, because newer orders wait to be read.
          behind_ = true;
          absl::FPrintF(stderr, "leeway-client: round %d: report refused: %s\n",
                        last_.header.round(), std::string(ended.message()));
          // Of several reports on a stream the refused one may be an earlier one, and
          // the last lost with the stream: alone on its own it gets its own answer.
          if (carried_ > 1) Send(queue, submit);
        }
      }
    }
  }

  // A server that was gone may come back with another run: then nothing of the old
  // one counts any more. A run's id stands for all its settings.
  absl::Status Enter(const v1::Order& order) {
    joined_ = true;
    if (order.run_id() == run_id_) return absl::OkStatus();
    run_id_.clear();
    models_.Clear();
    last_ = {};
    seed_ = order.welcome().seed();
    LEEWAY_RETURN_IF_ERROR(worker_.Prepare(order.welcome()));
    run_id_ = order.run_id();
    return absl::OkStatus();
  }

  absl::Status Do(const v1::Order& order, CallQueue& queue, std::unique_ptr<RawStream>& submit) {
    if (!IsDone(order)) {
      const absl::StatusOr<OrderModels> models = models_.Get(order);
      if (absl::IsNotFound(models.status())) return absl::OkStatus();  // the round has moved on
      LEEWAY_RETURN_IF_ERROR(models.status());
      Failpoint("client.before_work");
      LEEWAY_ASSIGN_OR_RETURN(last_, AnswerOrder(worker_, order, *models, seed_));
      Failpoint("client.after_work");
      last_.header.set_without_receipt(true);
      resent_ = 0;
    }
    Send(queue, submit);
    return absl::OkStatus();
  }

  // The last report answers this order: made before the server restarted, or before
  // we had to join again.
  bool IsDone(const v1::Order& order) const {
    const v1::ReportHeader& last = last_.header;
    if (last.run_id() != order.run_id() || last.round() != order.round() ||
        last.attempt() != order.attempt() || last.base_sha256() != order.model().sha256()) {
      return false;
    }
    std::set<std::string> done(last.clients().begin(), last.clients().end());
    for (const v1::ClientFailure& failure : last.failures()) done.insert(failure.client());
    std::set<std::string> asked;
    for (const uint32_t client : order.clients()) {
      if (client < worker_.clients()) asked.insert(worker_.ClientId(client));
    }
    return done == asked;
  }

  void Send(CallQueue& queue, std::unique_ptr<RawStream>& submit) {
    if (!submit) {
      submit = std::make_unique<RawStream>(channel_, kSubmitMethod, queue);
      submit->BeginRead();
      carried_ = 0;
    }
    ++carried_;
    Failpoint("client.before_send");
    for (const grpc::ByteBuffer& message : EncodeReport(last_.header, last_.payload)) {
      if (!submit->Write(message)) break;  // its read will say why
    }
    Failpoint("client.after_send");
  }

  Worker& worker_;
  const ConnectionOptions& options_;
  const std::shared_ptr<grpc::Channel> channel_;
  uint64_t instance_ = 0;
  bool joined_ = false;
  std::string run_id_;  // of the run that worker_ is prepared for
  uint64_t seed_ = 0;
  ModelFetch models_;
  Answer last_;  // kept until a newer one: a restarted server gets it again
  int resent_ = 0;
  uint64_t carried_ = 0;  // reports sent on the open stream
  bool busy_ = false;     // the last order took so long that newer ones may have come,
  bool behind_ = false;   // or one of the reports was refused
};

}  // namespace

absl::Status TakePart(Worker& worker, const ConnectionOptions& options) {
  return Member(worker, options).Run();
}

}  // namespace leeway
