// Credentials of both sides of a connection: mutual TLS 1.3, or none at all.
// Files are read and checked here once, so that a wrong one is named at the start
// and not guessed from a failed handshake.
#ifndef LEEWAY_COMMON_CREDENTIALS_H_
#define LEEWAY_COMMON_CREDENTIALS_H_

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace leeway {

// PEM files, all three or none.
struct TlsFiles {
  std::string ca;           // the authority that both sides trust, and no other
  std::string certificate;  // our own
  std::string key;          // and its private key
  bool empty() const { return ca.empty() && certificate.empty() && key.empty(); }
};

// Insecure if there are no files; then `address` must be of this machine, unless
// `insecure_anywhere`.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentials(
    const TlsFiles& files, absl::string_view address, bool insecure_anywhere);
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentials(
    const TlsFiles& files, absl::string_view address, bool insecure_anywhere);

// 127.0.0.0/8, ::1 or localhost.
bool IsLoopback(absl::string_view host);
// A loopback address, or a unix socket: nobody else's network sees it.
bool IsLocalAddress(absl::string_view address);

absl::StatusOr<std::string> ReadTextFile(const std::string& path);
// A file that holds a secret. InvalidArgument, with the command to run, if other users of the
// machine can read it.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path);

}  // namespace leeway

#endif  // LEEWAY_COMMON_CREDENTIALS_H_
