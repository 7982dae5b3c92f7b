// `leeway certs`: a certificate authority in a directory. It makes the certificates
// that leeway-server and leeway-client identify themselves with, lists and
// revokes them. Private keys are files that only their owner can read.
//
//   ca.crt ca.key        the authority; ca.key never leaves this directory
//   revoked.crl          for leeway-server --revoked
//   NAME.crt NAME.key    what is handed to a server or a client process
//   issued/SERIAL.crt    every certificate that was made
#ifndef LEEWAY_CLI_CERTS_H_
#define LEEWAY_CLI_CERTS_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/certificate.h"
#include "common/credentials.h"

namespace leeway {

inline constexpr int kDaysOfAuthority = 3650;  // no certificate outlives it

struct IssueOptions {
  std::string name;                // of its files and in lists
  std::vector<Grant> grants;       // clients that the holder may host
  bool observer = false;           // may watch only
  std::vector<std::string> hosts;  // of a server: names and addresses it is reached by
  int days = 365;
  bool renew = false;  // replace files of this name
};

struct IssuedCertificate {
  Certificate certificate;
  bool revoked = false;
};

absl::Status MakeAuthority(const std::string& directory, const std::string& name, int days);
// A server's certificate if there are hosts, else a client's.
absl::Status Issue(const std::string& directory, const IssueOptions& options);
// By name, then by time.
absl::StatusOr<std::vector<IssuedCertificate>> ListIssued(const std::string& directory);
// Revokes all valid certificates of that name; returns how many.
absl::StatusOr<size_t> Revoke(const std::string& directory, const std::string& name);
// Where the files of a name are.
TlsFiles FilesOf(const std::string& directory, const std::string& name);
std::string CrlPath(const std::string& directory);

// Adds `certs` with its subcommands. Their callbacks print, set *exit_code and throw
// nothing; it must live until the app has been parsed.
CLI::App* AddCertsCommands(CLI::App& app, int* exit_code);

}  // namespace leeway

#endif  // LEEWAY_CLI_CERTS_H_
