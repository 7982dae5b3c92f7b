#include "server/gate.h"

#include <grpc/grpc_security_constants.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/credentials.h"
#include "common/reason.h"
#include "common/status.h"
#include "common/wire.h"
#include "server/byte_budget.h"
#include "server/steady_time.h"

namespace leeway {
namespace {

constexpr size_t kMostKnown = 100'000;
constexpr absl::Duration kRecheck = absl::Seconds(1);

// The caller's certificate as PEM; empty without one.
std::string CertificateOf(const grpc::AuthContext& context) {
  const std::vector<grpc::string_ref> pems =
      context.FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  return pems.empty() ? "" : std::string(pems[0].data(), pems[0].size());
}

// gRPC calls it on the thread that reads the connection: whoever floods waits for it.
class CountStreams : public grpc::AuthMetadataProcessor {
 public:
  explicit CountStreams(Gate& gate) : gate_(gate) {}

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata&, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    return ToGrpc(gate_.CheckPace(CertificateOf(*context)));
  }

 private:
  Gate& gate_;
};

}  // namespace

Identity::Identity(const Certificate& certificate)
    : name_(certificate.name), serial_(certificate.serial), expires_(certificate.not_after) {
  for (const Grant& grant : certificate.grants) {
    Grants& grants = grant.evaluator ? evaluators_ : clients_;
    if (grant.client.empty()) {
      grants.anyone = grant.cap();
    } else {
      grants.caps[grant.client] = grant.cap();
    }
  }
}

std::optional<uint64_t> Identity::Grants::CapOf(const std::string& client) const {
  const auto found = caps.find(client);
  return found != caps.end() ? found->second : anyone;
}

absl::StatusOr<uint64_t> Identity::CapOf(const std::string& client, bool evaluator) const {
  if (const auto cap = (evaluator ? evaluators_ : clients_).CapOf(client)) return *cap;
  return WithReason(
      absl::PermissionDeniedError(absl::StrCat("the certificate '", name_, "' does not name ",
                                               evaluator ? "evaluator" : "client", " '", client,
                                               "'; make one that does: leeway certs client DIR ",
                                               evaluator ? "--evaluator " : "", client)),
      "identity");
}

absl::Status Identity::MayJoin(const v1::JoinRequest& request) const {
  for (const v1::HostedClient& client : request.clients()) {
    LEEWAY_ASSIGN_OR_RETURN(const uint64_t cap, CapOf(client.id(), client.evaluator()));
    const bool trains_on_more = client.examples() > cap;
    if (!trains_on_more && client.test_examples() <= cap) continue;
    return WithReason(absl::PermissionDeniedError(absl::StrCat(
                          client.evaluator() ? "evaluator" : "client", " '", client.id(),
                          "' claims ", trains_on_more ? client.examples() : client.test_examples(),
                          trains_on_more ? " examples" : " test examples", ", its certificate '",
                          name_, "' allows ", cap, "; make one with a higher --examples")),
                      "examples");
  }
  return absl::OkStatus();
}

absl::Status Identity::MayReport(const v1::ReportHeader& header) const {
  // Which of the two it is was checked when it joined.
  const auto check = [this](const std::string& client) {
    return evaluators_.CapOf(client) ? absl::OkStatus() : CapOf(client, false).status();
  };
  if (clients_.anyone) return absl::OkStatus();
  for (const std::string& client : header.clients()) LEEWAY_RETURN_IF_ERROR(check(client));
  for (const v1::ClientFailure& failure : header.failures()) {
    LEEWAY_RETURN_IF_ERROR(check(failure.client()));
  }
  return absl::OkStatus();
}

absl::Status Identity::MayFetch() const {
  for (const Grants* grants : {&clients_, &evaluators_}) {
    if (grants->anyone || !grants->caps.empty()) return absl::OkStatus();
  }
  return WithReason(
      absl::PermissionDeniedError(absl::StrCat("the certificate '", name_,
                                               "' may watch the run, but not fetch its models; "
                                               "that needs one that names a client")),
      "identity");
}

Visit& Visit::operator=(Visit&& other) noexcept {
  std::swap(gate_, other.gate_);
  std::swap(key_, other.key_);
  std::swap(peer_, other.peer_);
  std::swap(identity_, other.identity_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void Visit::CountMessage(size_t bytes) const {
  if (bytes_) bytes_->fetch_add(ByteBudget::WithFrames(bytes), std::memory_order_relaxed);
}

Visit::~Visit() {
  if (gate_ != nullptr) gate_->Exit(key_, peer_);
}

absl::Status Visit::StillWelcome() const {
  if (gate_ == nullptr || !gate_->certificates_) return absl::OkStatus();
  MutexLock lock(&gate_->mu_);
  gate_->RefreshRevoked(absl::Now()).IgnoreError();
  return gate_->Check(*identity_);
}

absl::StatusOr<std::unique_ptr<Gate>> Gate::WithCertificates(const std::string& authority_file,
                                                             const std::string& revoked) {
  auto gate = std::make_unique<Gate>();
  gate->certificates_ = true;
  gate->revoked_file_ = revoked;
  LEEWAY_ASSIGN_OR_RETURN(const std::string pem, ReadTextFile(authority_file));
  LEEWAY_ASSIGN_OR_RETURN(gate->authority_, ParseCertificate(pem));
  MutexLock lock(&gate->mu_);
  LEEWAY_RETURN_IF_ERROR(gate->RefreshRevoked(absl::Now()));
  return gate;
}

absl::StatusOr<std::unique_ptr<Gate>> Gate::BehindProxy(const std::string& authority_file,
                                                        const std::string& revoked) {
  LEEWAY_ASSIGN_OR_RETURN(std::unique_ptr<Gate> gate, WithCertificates(authority_file, revoked));
  gate->behind_proxy_ = true;
  return gate;
}

std::string Gate::CallerOf(const grpc::ServerContextBase& context) const {
  if (!behind_proxy_) return CertificateOf(*context.auth_context());
  const auto& headers = context.client_metadata();
  const auto found = headers.find(kCertificateHeader);
  // Two of them: one is not the proxy's.
  if (found == headers.end() || headers.count(kCertificateHeader) != 1) return "";
  return std::string(found->second.data(), found->second.size());
}

absl::StatusOr<X509Ptr> Gate::ParseCaller(const std::string& caller) const {
  if (!behind_proxy_) return ParseCertificate(caller);
  std::string der;
  if (absl::Base64Unescape(caller, &der)) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(der.data());
    X509Ptr certificate(d2i_X509(nullptr, &bytes, static_cast<long>(der.size())));
    if (certificate && X509_verify(certificate.get(), X509_get0_pubkey(authority_.get())) == 1) {
      return certificate;
    }
  }
  return absl::UnauthenticatedError(
      absl::StrCat("the header ", kCertificateHeader,
                   " holds no certificate of the authority in --behind-proxy; see "
                   "docs/security.md for what the proxy has to send"));
}

absl::Status Gate::RefreshRevoked(absl::Time now) {
  if (revoked_file_.empty() || now < revoked_checked_ + kRecheck) return revoked_state_;
  revoked_checked_ = now;
  struct stat info {};
  std::string stamp;
  if (stat(revoked_file_.c_str(), &info) == 0) {
    stamp = absl::StrCat(info.st_ino, " ", info.st_size, " ", info.st_mtim.tv_sec, " ",
                         info.st_mtim.tv_nsec);
    if (stamp == revoked_stamp_) return revoked_state_;
  }
  // A list that cannot be read stops newcomers: better than letting in the revoked.
  revoked_stamp_ = stamp;
  const absl::StatusOr<std::string> pem = ReadTextFile(revoked_file_);
  const absl::StatusOr<std::set<std::string>> serials =
      pem.ok() ? ParseRevoked(*pem, authority_.get()) : pem.status();
  if (serials.ok()) {
    revoked_ = *serials;
    revoked_state_ = absl::OkStatus();
  } else {
    revoked_state_ = WithReason(absl::UnavailableError(absl::StrCat(
                                    "the server's revocation list --revoked ", revoked_file_,
                                    " cannot be used (", serials.status().message(),
                                    "): nobody new is let in until its operator has put it right")),
                                "revocation_list");
  }
  return revoked_state_;
}

absl::Status Gate::Check(const Identity& identity) {
  const absl::Time now = absl::Now();
  if (revoked_.count(identity.serial()) > 0) {
    return WithReason(
        absl::UnauthenticatedError(absl::StrCat("the certificate '", identity.name(),
                                                "' has been revoked; ask for a new one")),
        "revoked");
  }
  if (now > identity.expires()) {
    return absl::UnauthenticatedError(
        absl::StrCat("the certificate '", identity.name(), "' has expired; ask for a new one"));
  }
  return absl::OkStatus();
}

absl::Status Gate::CheckPace(const std::string& caller) {
  bool was_out = false;
  {
    MutexLock lock(&pace_mu_);
    const absl::Time now = SteadyNow();
    was_out = pace_.IsOut(caller, now);
    if (pace_.Begin(caller, now)) return absl::OkStatus();
  }
  if (!was_out && watch_ != nullptr) watch_->Drop(caller);
  return WithReason(absl::ResourceExhaustedError(
                        absl::StrCat("more than ", CallPace::kCallsPerSecond,
                                     " calls were begun in a second, or the connection sent much "
                                     "else; try again in ",
                                     absl::FormatDuration(CallPace::kShutOut))),
                    "call_flood");
}

std::shared_ptr<grpc::AuthMetadataProcessor> Gate::StreamCount() {
  counts_streams_ = true;
  return std::make_shared<CountStreams>(*this);
}

std::string Gate::NameOf(const std::string& caller) const {
  if (!certificates_ || caller.empty()) return caller;
  const absl::StatusOr<X509Ptr> certificate = ParseCaller(caller);
  return certificate.ok() ? Describe(certificate->get()).name : "";
}

void Gate::ShutOut(const std::string& caller) {
  MutexLock lock(&pace_mu_);
  pace_.ShutOut(caller, SteadyNow());
}

absl::StatusOr<Visit> Gate::Enter(const grpc::ServerContextBase& context) {
  std::string peer = context.peer();
  std::string key = peer;
  std::shared_ptr<const Identity> identity;
  if (certificates_) {
    key = CallerOf(context);
    if (key.empty()) {
      return absl::UnauthenticatedError(
          "this server asks for a certificate; give --tls-ca, --tls-cert and --tls-key");
    }
  }
  // All who come by a unix socket have the same name, and the file says who may.
  if (!certificates_ && absl::StartsWith(peer, "unix:")) {
    return Visit(nullptr, "", "", std::make_shared<Identity>(peer), nullptr);
  }
  if (!counts_streams_) LEEWAY_RETURN_IF_ERROR(CheckPace(key));
  MutexLock lock(&mu_);
  if (certificates_) {
    if (known_.size() > kMostKnown) known_.clear();
    std::shared_ptr<const Identity>& entry = known_[key];
    if (!entry) {
      LEEWAY_ASSIGN_OR_RETURN(const X509Ptr certificate, ParseCaller(key));
      entry = std::make_shared<Identity>(Describe(certificate.get()));
    }
    identity = entry;
    LEEWAY_RETURN_IF_ERROR(RefreshRevoked(absl::Now()));
    LEEWAY_RETURN_IF_ERROR(Check(*identity));
  } else {
    identity = std::make_shared<Identity>(key);
  }
  Calls& calls = calls_[key];
  if (calls.all >= kCallsPerCaller) {
    return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                          identity->name(), " has ", calls.all,
                          " calls under way, more than a client needs; end some, or use one "
                          "certificate per process")),
                      "too_many_calls");
  }
  if (calls.by_connection.size() >= kConnectionsPerCaller && calls.by_connection.count(peer) == 0) {
    return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                          identity->name(), " calls from ", calls.by_connection.size(),
                          " connections, more than a client needs; close some, or use one "
                          "certificate per process")),
                      "too_many_connections");
  }
  ++calls.all;
  Calls::Connection& connection = calls.by_connection[peer];
  if (++connection.calls == 1 && watch_ != nullptr) {
    watch_->OnBusy(peer, true);
    connection.bytes = watch_->OnCaller(peer, key);
  }
  return Visit(this, std::move(key), std::move(peer), std::move(identity), connection.bytes);
}

void Gate::Exit(const std::string& key, const std::string& peer) {
  MutexLock lock(&mu_);
  const auto found = calls_.find(key);
  if (found == calls_.end()) return;
  Calls& calls = found->second;
  if (--calls.by_connection[peer].calls == 0) {
    calls.by_connection.erase(peer);
    if (watch_ != nullptr) watch_->OnBusy(peer, false);
  }
  if (--calls.all == 0) calls_.erase(found);
}

}  // namespace leeway
