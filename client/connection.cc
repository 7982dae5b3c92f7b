#include "client/connection.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/raw_stream.h"
#include "client/run_member.h"
#include "client/session.h"
#include "common/rng.h"
#include "common/status.h"
#include "common/wire.h"
#include "proto/federation.grpc.pb.h"

namespace leeway {
namespace {

constexpr char kDescribeMethod[] = "/leeway.v1.Federation/Describe";

class Member {
 public:
  Member(Worker& worker, const ConnectionOptions& options)
      : worker_(worker),
        options_(options),
        channel_(MakeChannel(options)),
        log_(options.log, HostedNames(worker)),
        part_(worker, options.answer, channel_, log_) {
    std::random_device random;
    instance_ = (uint64_t{random()} << 32) | random();
  }

  absl::Status Run() {
    LEEWAY_ASSIGN_OR_RETURN(const v1::JoinRequest request, MakeRequest());
    absl::Time last_contact = absl::Now();
    Rng jitter(instance_, 0, 0, Purpose::kBackoff);
    for (int failures = 0;; ++failures) {
      const absl::Time began = absl::Now();
      bool joined = false;
      std::string failure;
      const absl::StatusOr<Session::End> end = RunSession(request, joined, failure);
      if (end.ok() && *end == Session::End::kRunOver) {
        log_.Write(LogLine::Level::kInfo, "finished", "the run is over: all its rounds are done");
        return absl::OkStatus();
      }
      if (end.ok() && *end == Session::End::kRunFailed) {
        log_.Write(LogLine::Level::kError, "finished",
                   absl::StrCat("the run has failed: ", failure));
        return absl::AbortedError(absl::StrCat("the run has failed: ", failure));
      }
      if (!end.ok() && !IsTransient(end.status())) {
        log_.Write(LogLine::Level::kError, "refused", std::string(end.status().message()));
        return end.status();
      }
      if (joined) {
        last_contact = absl::Now();
        failures = 0;
      }
      if (failures == 0) LogOutage(joined, end.status());
      if (absl::Now() - last_contact > options_.give_up) return NoServer(end.status());
      // Exponential backoff with jitter, from 50 ms to 5 s.
      const double seconds = std::min(5.0, 0.05 * static_cast<double>(1 << std::min(failures, 7)));
      Pause(began, absl::Seconds(seconds * (0.5 + jitter.Uniform())));
    }
  }

 private:
  // Before the first session: a worker that cannot compute the run's model takes no client's
  // place. Servers of earlier versions describe no runs; then the first order does.
  absl::Status Prepare(const v1::JoinRequest& request) {
    RawStream call(channel_, kDescribeMethod);
    const grpc::Slice slice(request.SerializeAsString());
    grpc::ByteBuffer answer;
    if (call.Write(grpc::ByteBuffer(&slice, 1))) call.WritesDone();
    const bool answered = call.Read(answer);
    const absl::Status described = call.Finish();
    if (absl::IsUnimplemented(described)) return absl::OkStatus();
    LEEWAY_RETURN_IF_ERROR(described);
    v1::Welcome welcome;
    if (!answered || !grpc::SerializationTraits<v1::Welcome>::Deserialize(&answer, &welcome).ok()) {
      return absl::InternalError("the server sent a description that cannot be read");
    }
    return part_.Prepare(welcome);
  }

  // When this returns, the session's streams are closed.
  absl::StatusOr<Session::End> RunSession(const v1::JoinRequest& request, bool& joined,
                                          std::string& failure) {
    if (!described_) {
      LEEWAY_RETURN_IF_ERROR(Prepare(request));
      described_ = true;
    }
    Session session(part_, *options_.answering, channel_, request);
    absl::StatusOr<Session::End> end = session.Run();
    joined = session.joined();
    failure = session.failure();
    return end;
  }

  // Once for each time that the server is out of reach.
  void LogOutage(bool joined, const absl::Status& why) const {
    const std::string reason =
        why.ok() ? "the server ended the stream" : std::string(why.message());
    const std::string then =
        absl::StrCat("; trying again for ", absl::FormatDuration(options_.give_up),
                     " (--give-up): see that leeway-server runs at ", options_.server);
    log_.Write(LogLine::Level::kWarning, joined ? "reconnecting" : "connecting",
               absl::StrCat(reason, then));
  }

  // "a", or "a and 9 more".
  static std::string HostedNames(const Worker& worker) {
    if (worker.clients() == 0) return "";
    return worker.clients() == 1
               ? worker.ClientId(0)
               : absl::StrCat(worker.ClientId(0), " and ", worker.clients() - 1, " more");
  }

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

  absl::Status NoServer(const absl::Status& why) const {
    return absl::UnavailableError(absl::StrCat(
        "no server at ", options_.server, " for ", absl::FormatDuration(options_.give_up), " (",
        why.ok() ? "stream ended" : why.message(),
        "); start leeway-server first, check --server and, with TLS, that both sides' "
        "certificates are of one authority, or wait longer with --give-up"));
  }

  // Until `pause` after `began`, if there is a connection. Connecting goes on only while
  // somebody waits for it: asleep, this thread would let one attempt after the other run out
  // of time.
  void Pause(absl::Time began, absl::Duration pause) const {
    if (channel_->GetState(false) == GRPC_CHANNEL_READY) {
      absl::SleepFor(pause - std::min(pause, absl::Now() - began));
    } else {
      channel_->WaitForConnected(absl::ToChronoTime(absl::Now() + pause));
    }
  }

  absl::StatusOr<v1::JoinRequest> MakeRequest() const {
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
    return request;
  }

  Worker& worker_;
  const ConnectionOptions& options_;
  const std::shared_ptr<grpc::Channel> channel_;
  uint64_t instance_ = 0;
  bool described_ = false;  // the worker is prepared for the run, or learns of it later
  ClientLog log_;
  RunMember part_;
};

}  // namespace

absl::Status TakePart(Worker& worker, const ConnectionOptions& options) {
  return Member(worker, options).Run();
}

}  // namespace leeway
