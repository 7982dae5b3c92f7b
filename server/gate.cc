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
  return *this;
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

absl::Status Gate::CheckPace(const std::string& key, const std::string& peer, absl::Time now) {
  if (pace_.Begin(key, now)) return absl::OkStatus();
  if (watch_ != nullptr) watch_->Drop(peer);
  return WithReason(absl::ResourceExhaustedError(
                        absl::StrCat("more than ", CallPace::kCallsPerSecond,
                                     " calls were begun in a second; the connection is closed")),
                    "call_flood");
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
  LEEWAY_RETURN_IF_ERROR(CheckPace(key, peer, absl::Now()));
  if (certificates_) {
    if (known_.size() > kMostKnown) known_.clear();
    std::shared_ptr<const Identity>& entry = known_[key];
    if (!entry) {
      LEEWAY_ASSIGN_OR_RETURN(const X509Ptr certificate, ParseCertificate(key));
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
