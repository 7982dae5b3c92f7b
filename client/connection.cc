#include "client/connection.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/raw_stream.h"
#include "common/rng.h"
#include "common/status.h"
#include "common/wire.h"
#include "proto/federation.grpc.pb.h"

namespace leeway {
namespace {

constexpr char kSubmitMethod[] = "/leeway.v1.Federation/Submit";
constexpr char kFetchMethod[] = "/leeway.v1.Federation/Fetch";

// Orders as they come in. Only the newest counts: a client that was busy while
// rounds went by takes up the one that is open now.
class OrderStream {
 public:
  OrderStream(v1::Federation::Stub& stub, const v1::JoinRequest& request)
      : reader_(stub.Join(&context_, request)), thread_([this] { ReadAll(); }) {}
  ~OrderStream() {
    context_.TryCancel();
    thread_.join();
  }
  // The next order; nothing when the stream has ended (then ask status()).
  std::optional<v1::Order> Next() {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [this] { return newest_.has_value() || ended_; });
    return std::exchange(newest_, std::nullopt);
  }
  absl::Status status() const { return status_; }

 private:
  void ReadAll() {
    v1::Order order;
    while (reader_->Read(&order)) {
      const std::lock_guard lock(mu_);
      // The welcome must not be overtaken by the order that follows it.
      if (newest_ && newest_->has_welcome())
        order.mutable_welcome()->Swap(newest_->mutable_welcome());
      newest_ = std::move(order);
      order = v1::Order();
      changed_.notify_one();
    }
    const absl::Status status = FromGrpc(reader_->Finish());
    const std::lock_guard lock(mu_);
    status_ = status;
    ended_ = true;
    changed_.notify_one();
  }

  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::Order>> reader_;
  std::mutex mu_;
  std::condition_variable changed_;
  std::optional<v1::Order> newest_;
  bool ended_ = false;
  absl::Status status_;
  std::thread thread_;  // last: it uses all of the above
};

class Member {
 public:
  Member(Host& host, const ConnectionOptions& options)
      : host_(host),
        options_(options),
        channel_(MakeChannel(options.server)),
        stub_(v1::Federation::NewStub(channel_)) {
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
            "); start leeway-server first, check --server, or wait longer with --give-up"));
      }
      // Exponential backoff with jitter, from 50 ms to 5 s.
      const double seconds = std::min(5.0, 0.05 * static_cast<double>(1 << std::min(failures, 7)));
      const absl::Duration pause = absl::Seconds(seconds * (0.5 + jitter.Uniform()));
      absl::SleepFor(pause - std::min(pause, absl::Now() - began));
    }
  }

 private:
  static std::shared_ptr<grpc::Channel> MakeChannel(const std::string& server) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
    return grpc::CreateCustomChannel(server, grpc::InsecureChannelCredentials(), arguments);
  }

  static bool IsTransient(const absl::Status& status) {
    return absl::IsUnavailable(status) || absl::IsCancelled(status) || absl::IsUnknown(status) ||
           absl::IsInternal(status) || absl::IsAborted(status) || absl::IsDeadlineExceeded(status);
  }

  // One Join stream. True: the run is over. False or a transient error: try again.
  absl::StatusOr<bool> Session() {
    joined_ = false;
    submit_.reset();
    v1::JoinRequest request = host_.JoinRequest();
    request.set_host(options_.name);
    request.set_instance(instance_);
    OrderStream orders(*stub_, request);
    while (std::optional<v1::Order> order = orders.Next()) {
      if (order->has_welcome() && !joined_) {
        joined_ = true;
        if (!prepared_) LEEWAY_RETURN_IF_ERROR(host_.Prepare(order->welcome()));
        prepared_ = true;
      }
      if (order->finished()) return true;
      if (order->round() != 0) LEEWAY_RETURN_IF_ERROR(Do(*order));
    }
    LEEWAY_RETURN_IF_ERROR(orders.status());
    return false;
  }

  absl::Status Do(const v1::Order& order) {
    const v1::ReportHeader& last = last_.header;
    const bool done_before = last.run_id() == order.run_id() && last.round() == order.round() &&
                             last.attempt() == order.attempt() &&
                             last.base_sha256() == order.model().sha256() &&
                             last.clients_size() + last.failures_size() == order.clients_size();
    if (!done_before) {
      const absl::Status fetched = FetchModel(order.model());
      if (absl::IsNotFound(fetched)) return absl::OkStatus();  // the round has moved on
      LEEWAY_RETURN_IF_ERROR(fetched);
      LEEWAY_ASSIGN_OR_RETURN(last_, host_.Work(order, model_));
    }
    const absl::Status sent = Send(last_);
    if (sent.ok() || IsTransient(sent)) return absl::OkStatus();  // a new stream will resend
    // The server has refused this report; the run and this process go on.
    absl::FPrintF(stderr, "leeway-client: round %d: report refused: %s\n", order.round(),
                  std::string(sent.message()));
    return absl::OkStatus();
  }

  absl::Status Send(const Outgoing& report) {
    if (!submit_) submit_ = std::make_unique<RawStream>(channel_, kSubmitMethod);
    for (const grpc::ByteBuffer& message : EncodeReport(report.header, report.payload)) {
      if (!submit_->Write(message)) return EndSubmit();
    }
    grpc::ByteBuffer receipt;
    return submit_->Read(receipt) ? absl::OkStatus() : EndSubmit();
  }

  absl::Status EndSubmit() {
    const absl::Status status = submit_->Finish();
    submit_.reset();
    return status.ok() ? absl::UnavailableError("the server closed the stream") : status;
  }

  absl::Status FetchModel(const v1::ModelRef& ref) {
    if (ref.sha256() == model_sha256_) return absl::OkStatus();
    std::string file = ref.inline_();
    if (file.empty()) {
      file.resize(ref.size());
      size_t received = 0;
      for (int tries = 0; received < file.size(); ++tries) {
        const absl::Status status = FetchFrom(ref, received, file);
        if (status.ok()) continue;
        if (!absl::IsUnavailable(status) || tries >= 5) return status;
      }
    }
    LEEWAY_ASSIGN_OR_RETURN(model_, host_.Decode(file));
    model_sha256_ = ref.sha256();
    return absl::OkStatus();
  }

  // Continues a transfer; `received` counts the bytes that have arrived.
  absl::Status FetchFrom(const v1::ModelRef& ref, size_t& received, std::string& file) {
    v1::FetchRequest request;
    request.set_sha256(ref.sha256());
    request.set_offset(received);
    RawStream stream(channel_, kFetchMethod);
    const grpc::Slice slice(request.SerializeAsString());
    if (stream.Write(grpc::ByteBuffer(&slice, 1)) && stream.WritesDone()) {
      grpc::ByteBuffer message;
      while (received < file.size() && stream.Read(message)) {
        LEEWAY_ASSIGN_OR_RETURN(
            const size_t n,
            ParseChunk(message, reinterpret_cast<std::byte*>(file.data()) + received,
                       file.size() - received));
        received += n;
      }
    }
    if (received == file.size()) return absl::OkStatus();
    const absl::Status status = stream.Finish();
    return status.ok() ? absl::UnavailableError("the transfer ended early") : status;
  }

  Host& host_;
  const ConnectionOptions& options_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Federation::Stub> stub_;
  uint64_t instance_ = 0;
  bool prepared_ = false;
  bool joined_ = false;
  std::string model_sha256_;
  Parameters model_;
  Outgoing last_;  // kept until a newer one: a restarted server gets it again
  std::unique_ptr<RawStream> submit_;
};

}  // namespace

absl::Status TakePart(Host& host, const ConnectionOptions& options) {
  return Member(host, options).Run();
}

}  // namespace leeway
