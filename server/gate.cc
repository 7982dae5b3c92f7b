#include "server/gate.h"

#include <grpc/grpc_security_constants.h>
#include <sys/stat.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/credentials.h"
#include "common/reason.h"
#include "common/status.h"

namespace leeway {
namespace {

constexpr size_t kMostKnown = 100'000;
constexpr absl::Duration kRecheck = absl::Seconds(1);

}  // namespace

Identity::Identity(const Certificate& certificate)
    : name_(certificate.name), serial_(certificate.serial), expires_(certificate.not_after) {
  for (const Grant& grant : certificate.grants) {
    if (grant.client.empty()) {
      anyone_ = true;
      anyone_cap_ = grant.examples;
    } else {
      caps_[grant.client] = grant.examples;
    }
  }
}

absl::StatusOr<uint64_t> Identity::CapOf(const std::string& client) const {
  if (const auto found = caps_.find(client); found != caps_.end()) return found->second;
  if (anyone_) return anyone_cap_;
  return WithReason(absl::PermissionDeniedError(
                        absl::StrCat("the certificate '", name_, "' does not name client '", client,
                                     "'; make one that does: leeway certs client DIR ", client)),
                    "identity");
}

absl::Status Identity::MayJoin(const v1::JoinRequest& request) const {
  for (const v1::HostedClient& client : request.clients()) {
    LEEWAY_ASSIGN_OR_RETURN(const uint64_t cap, CapOf(client.id()));
    if (cap > 0 && client.examples() > cap) {
      return WithReason(absl::PermissionDeniedError(
                            absl::StrCat("client '", client.id(), "' claims ", client.examples(),
                                         " examples, its certificate '", name_, "' allows ", cap,
                                         "; make one with a higher --examples")),
                        "examples");
    }
  }
  return absl::OkStatus();
}

absl::Status Identity::MayReport(const v1::ReportHeader& header) const {
  if (anyone_) return absl::OkStatus();
  for (const std::string& client : header.clients()) {
    LEEWAY_RETURN_IF_ERROR(CapOf(client).status());
  }
  for (const v1::ClientFailure& failure : header.failures()) {
    LEEWAY_RETURN_IF_ERROR(CapOf(failure.client()).status());
  }
  return absl::OkStatus();
}

Visit& Visit::operator=(Visit&& other) noexcept {
  std::swap(gate_, other.gate_);
  std::swap(key_, other.key_);
  std::swap(peer_, other.peer_);
  std::swap(identity_, other.identity_);
  return *this;
}

Visit::~Visit() {
  if (gate_ != nullptr) gate_->Exit(key_, peer_);
}

absl::Status Visit::StillWelcome() const {
  if (gate_ == nullptr || !gate_->certificates_) return absl::OkStatus();
  MutexLock lock(&gate_->mu_);
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
    revoked_state_ = absl::UnavailableError(
        absl::StrCat("--revoked ", revoked_file_, ": ", serials.status().message()));
  }
  return revoked_state_;
}

absl::Status Gate::Check(const Identity& identity) {
  const absl::Time now = absl::Now();
  LEEWAY_RETURN_IF_ERROR(RefreshRevoked(now));
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

absl::StatusOr<Visit> Gate::Enter(const grpc::ServerContextBase& context) {
  std::string peer = context.peer();
  std::string key = peer;
  std::shared_ptr<const Identity> identity;
  if (certificates_) {
    const std::vector<grpc::string_ref> pems =
        context.auth_context()->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
    if (pems.empty()) {
      return absl::UnauthenticatedError(
          "this server asks for a certificate; give --tls-ca, --tls-cert and --tls-key");
    }
    key.assign(pems[0].data(), pems[0].size());
  }
  // All who come by a unix socket have the same name, and the file says who may.
  if (!certificates_ && absl::StartsWith(peer, "unix:")) {
    return Visit(nullptr, "", "", std::make_shared<Identity>(peer));
  }
  MutexLock lock(&mu_);
  if (certificates_) {
    if (known_.size() > kMostKnown) known_.clear();
    std::shared_ptr<const Identity>& entry = known_[key];
    if (!entry) {
      LEEWAY_ASSIGN_OR_RETURN(const X509Ptr certificate, ParseCertificate(key));
      entry = std::make_shared<Identity>(Describe(certificate.get()));
    }
    identity = entry;
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
  if (++calls.by_connection[peer] == 1 && watch_ != nullptr) watch_->OnBusy(peer, true);
  return Visit(this, std::move(key), std::move(peer), std::move(identity));
}

void Gate::Exit(const std::string& key, const std::string& peer) {
  MutexLock lock(&mu_);
  const auto found = calls_.find(key);
  if (found == calls_.end()) return;
  Calls& calls = found->second;
  if (--calls.by_connection[peer] == 0) {
    calls.by_connection.erase(peer);
    if (watch_ != nullptr) watch_->OnBusy(peer, false);
  }
  if (--calls.all == 0) calls_.erase(found);
}

}  // namespace leeway
