#include "common/credentials.h"

#include <arpa/inet.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/certificate.h"
#include "common/status.h"

namespace leeway {
namespace {

struct Pem {
  std::string ca;
  std::string certificate;
  std::string key;
};

absl::StatusOr<X509Ptr> CheckedCertificate(const std::string& path, const std::string& pem) {
  absl::StatusOr<X509Ptr> certificate = ParseCertificate(pem);
  if (!certificate.ok()) return Annotate(certificate.status(), path);
  const Certificate what = Describe(certificate->get());
  const absl::Time now = absl::Now();
  if (now > what.not_after || now < what.not_before) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is valid from ", absl::FormatTime(what.not_before, absl::UTCTimeZone()), " to ",
        absl::FormatTime(what.not_after, absl::UTCTimeZone()),
        "; set the clock right, or make a new one with `leeway certs`"));
  }
  return certificate;
}

absl::StatusOr<std::string> ReadFlag(absl::string_view flag, const std::string& path) {
  absl::StatusOr<std::string> text = ReadTextFile(path);
  if (text.ok()) return text;
  return absl::InvalidArgumentError(absl::StrCat(text.status().message(), "; give ", flag,
                                                 " a file that `leeway certs` has made"));
}

absl::StatusOr<Pem> Load(const TlsFiles& files) {
  if (files.ca.empty() || files.certificate.empty() || files.key.empty()) {
    return absl::InvalidArgumentError(
        "TLS needs --tls-ca, --tls-cert and --tls-key together; make them with `leeway certs`");
  }
  Pem pem;
  LEEWAY_ASSIGN_OR_RETURN(pem.ca, ReadFlag("--tls-ca", files.ca));
  LEEWAY_ASSIGN_OR_RETURN(pem.certificate, ReadFlag("--tls-cert", files.certificate));
  LEEWAY_ASSIGN_OR_RETURN(pem.key, ReadFlag("--tls-key", files.key));
  LEEWAY_ASSIGN_OR_RETURN(const X509Ptr authority, CheckedCertificate(files.ca, pem.ca));
  LEEWAY_ASSIGN_OR_RETURN(const X509Ptr own,
                          CheckedCertificate(files.certificate, pem.certificate));
  const BioPtr bio(BIO_new_mem_buf(pem.key.data(), static_cast<int>(pem.key.size())));
  const KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  if (!key) return absl::InvalidArgumentError(absl::StrCat(files.key, " is not a PEM private key"));
  if (X509_check_private_key(own.get(), key.get()) != 1) {
    return absl::InvalidArgumentError(absl::StrCat(files.key, " is not the private key of ",
                                                   files.certificate, "; give a matching pair"));
  }
  if (X509_verify(own.get(), X509_get0_pubkey(authority.get())) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(files.certificate, " was not made by the authority in ", files.ca,
                     "; use certificates of one `leeway certs` directory on both sides"));
  }
  LEEWAY_RETURN_IF_ERROR(ReadSecretFile(files.key).status());
  return pem;
}

absl::Status CheckInsecure(absl::string_view address, bool anywhere) {
  if (anywhere || IsLocalAddress(address)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "without TLS only this machine can be reached safely, but the address is ", address,
      "; make certificates with `leeway certs` and give --tls-ca, --tls-cert and "
      "--tls-key, or accept with --insecure-anywhere that anybody on the network can "
      "read, alter and send reports"));
}

// gRPC 1.51 has no public way to set the lowest version. Without a cipher suite
// that TLS 1.2 could use (this one needs a shared key, and there is none), TLS 1.3,
// whose suites are set elsewhere, is what remains.
void AllowTls13Only() {
  static const int once = setenv("GRPC_SSL_CIPHER_SUITES", "PSK-AES256-GCM-SHA384", 1);
  static_cast<void>(once);
}

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  if (in && !text.str().empty()) return text.str();
  std::error_code ignored;
  const char* why = !in                                            ? std::strerror(errno)
                    : std::filesystem::is_directory(path, ignored) ? "it is a directory"
                                                                   : "it is empty";
  return absl::NotFoundError(absl::StrCat("cannot read ", path, ": ", why));
}

absl::StatusOr<std::string> ReadSecretFile(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && (info.st_mode & S_IRWXO) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     " is a secret, but every user of this machine can open it; run: chmod "
                     "600 ",
                     path));
  }
  return ReadTextFile(path);
}

bool IsLoopback(absl::string_view host) {
  in_addr address;
  if (inet_pton(AF_INET, std::string(host).c_str(), &address) == 1) {
    return ntohl(address.s_addr) >> 24 == 127;
  }
  return host == "localhost" || host == "::1" || host == "[::1]";
}

bool IsLocalAddress(absl::string_view address) {
  if (absl::StartsWith(address, "unix:") || absl::StartsWith(address, "unix-abstract:")) {
    return true;
  }
  for (absl::string_view scheme : {"dns:///", "dns:", "ipv4:", "ipv6:"}) {
    if (absl::StartsWith(address, scheme)) address.remove_prefix(scheme.size());
  }
  return IsLoopback(address.substr(0, address.rfind(':')));
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentials(
    const TlsFiles& files, absl::string_view address, bool insecure_anywhere) {
  if (files.empty()) {
    LEEWAY_RETURN_IF_ERROR(CheckInsecure(address, insecure_anywhere));
    return grpc::InsecureChannelCredentials();
  }
  LEEWAY_ASSIGN_OR_RETURN(const Pem pem, Load(files));
  AllowTls13Only();
  return grpc::SslCredentials({pem.ca, pem.key, pem.certificate});
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentials(
    const TlsFiles& files, absl::string_view address, bool insecure_anywhere) {
  if (files.empty()) {
    LEEWAY_RETURN_IF_ERROR(CheckInsecure(address, insecure_anywhere));
    return grpc::InsecureServerCredentials();
  }
  LEEWAY_ASSIGN_OR_RETURN(const Pem pem, Load(files));
  AllowTls13Only();
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = pem.ca;
  options.pem_key_cert_pairs.push_back({pem.key, pem.certificate});
  return grpc::SslServerCredentials(options);
}

}  // namespace leeway
