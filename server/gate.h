// Gate: who is calling, decided once per call from the connection's certificate
// and before anything is read; and how many calls and connections one caller may
// have at a time.
// Thread-safe.
#ifndef LEEWAY_SERVER_GATE_H_
#define LEEWAY_SERVER_GATE_H_

#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/server_context.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/certificate.h"
#include "common/mutex.h"
#include "proto/federation.pb.h"
#include "server/call_pace.h"

namespace leeway {

// What a caller may do. Immutable.
class Identity {
 public:
  // Without certificates everybody may be anybody.
  explicit Identity(std::string caller) : name_(std::move(caller)) {
    clients_.anyone = evaluators_.anyone = kMostExamples;
  }
  explicit Identity(const Certificate& certificate);

  const std::string& name() const { return name_; }
  const std::string& serial() const { return serial_; }
  absl::Time expires() const { return expires_; }
  // PermissionDenied if the certificate does not name one of the clients, or
  // allows fewer examples; to evaluate centrally needs a grant of its own.
  absl::Status MayJoin(const v1::JoinRequest& request) const;
  absl::Status MayReport(const v1::ReportHeader& header) const;
  // PermissionDenied if it may host nobody: who only watches gets no models.
  absl::Status MayFetch() const;

 private:
  // Whom the holder may host, and the examples that each may claim.
  struct Grants {
    std::optional<uint64_t> anyone;  // if any may be hosted: their cap
    absl::flat_hash_map<std::string, uint64_t> caps;
    std::optional<uint64_t> CapOf(const std::string& client) const;
  };
  absl::StatusOr<uint64_t> CapOf(const std::string& client, bool evaluator) const;

  std::string name_;
  std::string serial_;
  absl::Time expires_ = absl::InfiniteFuture();
  Grants clients_;
  Grants evaluators_;
};

class Gate;

// Bytes of the messages that calls of one connection have read (ByteBudget::WithFrames).
using MessageBytes = std::atomic<uint64_t>;

// Is notified of which connections (by gRPC's name of their peer) have calls of callers that
// were let in. Never blocks.
class ConnectionWatch {
 public:
  virtual ~ConnectionWatch() = default;
  virtual void OnBusy(const std::string& peer, bool busy) = 0;
  // The caller who has calls on that connection, and where the bytes of their messages are
  // counted; null if the connection is gone.
  virtual std::shared_ptr<MessageBytes> OnCaller(const std::string& peer,
                                                 const std::string& caller) = 0;
  // A caller begins more calls than any client does: its connections are to be closed.
  virtual void Drop(const std::string& caller) = 0;
};

// One call of one caller; gives its place back at the end.
class Visit {
 public:
  Visit() = default;
  Visit(Gate* gate, std::string key, std::string peer, std::shared_ptr<const Identity> identity,
        std::shared_ptr<MessageBytes> bytes)
      : gate_(gate),
        key_(std::move(key)),
        peer_(std::move(peer)),
        identity_(std::move(identity)),
        bytes_(std::move(bytes)) {}
  Visit(Visit&& other) noexcept { *this = std::move(other); }
  Visit& operator=(Visit&& other) noexcept;
  ~Visit();
  const Identity& identity() const { return *identity_; }
  // The call has read a message of so many bytes.
  void CountMessage(size_t bytes) const;
  // Unauthenticated once the certificate has been revoked or has expired: for
  // calls that last. A revocation list that cannot be read any more changes nothing for them.
  absl::Status StillWelcome() const;

 private:
  Gate* gate_ = nullptr;
  std::string key_;
  std::string peer_;
  std::shared_ptr<const Identity> identity_;
  std::shared_ptr<MessageBytes> bytes_;  // null: nobody watches the connection
};

class Gate {
 public:
  // Calls that one certificate (without TLS: one connection; no limit by a unix socket)
  // may have at a time.
  static constexpr int kCallsPerCaller = 64;
  // Connections with calls that one certificate may have at a time. A process has
  // one; there is room for observers and for those that are dead and not yet missed.
  static constexpr size_t kConnectionsPerCaller = 16;

  // Without TLS.
  Gate() = default;
  // With TLS. `revoked` is a file that may change while we run; empty: none.
  static absl::StatusOr<std::unique_ptr<Gate>> WithCertificates(const std::string& authority_file,
                                                                const std::string& revoked);

  // Behind a proxy that ends TLS and passes each caller's certificate, which it has checked, in
  // the header kCertificateHeader. Only it may reach the server: by a unix socket.
  static absl::StatusOr<std::unique_ptr<Gate>> BehindProxy(const std::string& authority_file,
                                                           const std::string& revoked);
  // The certificate in DER, as base64.
  static constexpr char kCertificateHeader[] = "x-leeway-certificate";

  // Callers are known by their certificates.
  bool certificates() const { return certificates_; }

  // Before the first call. Must outlive the gate. Unix sockets have no names and are not told.
  void Tell(ConnectionWatch* watch) { watch_ = watch; }

  // Unauthenticated without a certificate or with a revoked one;
  // ResourceExhausted with too many calls or connections.
  absl::StatusOr<Visit> Enter(const grpc::ServerContextBase& context) ABSL_LOCKS_EXCLUDED(mu_);

  // Counts streams at their headers, before gRPC makes calls of them: those that are reset at
  // once never get as far as Enter. For the credentials of a server that asks for certificates,
  // before its first call; the gate must outlive them.
  std::shared_ptr<grpc::AuthMetadataProcessor> StreamCount();
  // ResourceExhausted if the caller, known by its certificate or connection, begins too many
  // calls; then it is shut out, and its connections are closed.
  absl::Status CheckPace(const std::string& caller) ABSL_LOCKS_EXCLUDED(pace_mu_);
  // How a log names a caller: by its certificate's name, or its connection.
  std::string NameOf(const std::string& caller) const;
  // A connection of this caller has flooded the server.
  void ShutOut(const std::string& caller) ABSL_LOCKS_EXCLUDED(pace_mu_);

 private:
  friend class Visit;
  // The caller's certificate, as TLS or the proxy gives it; empty without one.
  std::string CallerOf(const grpc::ServerContextBase& context) const;
  absl::StatusOr<X509Ptr> ParseCaller(const std::string& caller) const;
  // With the last list that could be read.
  absl::Status Check(const Identity& identity) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RefreshRevoked(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Exit(const std::string& key, const std::string& peer) ABSL_LOCKS_EXCLUDED(mu_);

  struct Calls {
    int all = 0;
    struct Connection {
      int calls = 0;
      std::shared_ptr<MessageBytes> bytes;
    };
    absl::flat_hash_map<std::string, Connection> by_connection;
  };

  // Constant after construction, and before the first call.
  bool certificates_ = false;
  bool behind_proxy_ = false;
  bool counts_streams_ = false;  // before Enter
  X509Ptr authority_;
  std::string revoked_file_;
  ConnectionWatch* watch_ = nullptr;

  Mutex mu_;
  absl::flat_hash_map<std::string, Calls> calls_ ABSL_GUARDED_BY(mu_);  // by caller
  // By certificate, so that each is taken apart once.
  absl::flat_hash_map<std::string, std::shared_ptr<const Identity>> known_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> revoked_ ABSL_GUARDED_BY(mu_);
  absl::Status revoked_state_ ABSL_GUARDED_BY(mu_);
  std::string revoked_stamp_ ABSL_GUARDED_BY(mu_);  // size and time of the file when read
  absl::Time revoked_checked_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();

  // Apart from mu_: a flood does not hold up those who are let in.
  Mutex pace_mu_;
  CallPace pace_ ABSL_GUARDED_BY(pace_mu_);
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_GATE_H_
