#include "cli/certs.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <memory>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/durable_file.h"
#include "common/status.h"

namespace leeway {
namespace {

namespace fs = std::filesystem;

constexpr char kAuthority[] = "ca";
constexpr mode_t kSecret = 0600;
constexpr mode_t kPublic = 0644;

struct Authority {
  X509Ptr certificate;
  KeyPtr key;
};

absl::Status OpensslError(absl::string_view doing) {
  std::array<char, 256> text{};
  ERR_error_string_n(ERR_get_error(), text.data(), text.size());
  return absl::InternalError(absl::StrCat("OpenSSL cannot ", doing, ": ", text.data()));
}

// Names become file names.
absl::Status CheckName(absl::string_view name) {
  const bool plain = !name.empty() && name.size() <= 64 && name[0] != '.' &&
                     std::all_of(name.begin(), name.end(), [](unsigned char c) {
                       return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
                     });
  if (plain && name != kAuthority) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", name,
                   "' cannot be the name of a certificate's files; choose one of at most "
                   "64 letters, digits, '.', '_', '-' (not 'ca') with --name"));
}

template <typename Write>
absl::StatusOr<std::string> ToPem(const Write& write) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  if (!bio || write(bio.get()) != 1) return OpensslError("write PEM");
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

absl::Status Save(const std::string& path, const absl::StatusOr<std::string>& pem, mode_t mode) {
  LEEWAY_RETURN_IF_ERROR(pem.status());
  return WriteFile(path, *pem, /*sync=*/true, mode);
}

absl::StatusOr<Authority> LoadAuthority(const std::string& directory) {
  const TlsFiles files = FilesOf(directory, kAuthority);
  absl::StatusOr<std::string> certificate = ReadTextFile(files.certificate);
  if (!certificate.ok()) {
    return absl::NotFoundError(absl::StrCat(
        directory, " holds no certificate authority; make one with `leeway certs init ", directory,
        "`"));
  }
  LEEWAY_ASSIGN_OR_RETURN(const std::string key, ReadTextFile(files.key));
  Authority authority;
  LEEWAY_ASSIGN_OR_RETURN(authority.certificate, ParseCertificate(*certificate));
  const BioPtr bio(BIO_new_mem_buf(key.data(), static_cast<int>(key.size())));
  authority.key.reset(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  if (!authority.key) return absl::DataLossError(absl::StrCat(files.key, " is not a private key"));
  return authority;
}

bool AddExtension(X509* certificate, X509* issuer, int id, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, id, value);
  if (extension == nullptr) return false;
  const bool added = X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

GENERAL_NAME* TextName(int type, const std::string& text) {
  ASN1_IA5STRING* value = ASN1_IA5STRING_new();
  ASN1_STRING_set(value, text.data(), static_cast<int>(text.size()));
  GENERAL_NAME* name = GENERAL_NAME_new();
  GENERAL_NAME_set0_value(name, type, value);
  return name;
}

NamesPtr AlternativeNames(const IssueOptions& options) {
  NamesPtr names(GENERAL_NAMES_new());
  const auto add = [&](GENERAL_NAME* name) { sk_GENERAL_NAME_push(names.get(), name); };
  for (const Grant& grant : options.grants) add(TextName(GEN_URI, GrantUri(grant)));
  if (options.observer) add(TextName(GEN_URI, kObserverUri));
  for (const std::string& host : options.hosts) {
    if (ASN1_OCTET_STRING* address = a2i_IPADDRESS(host.c_str()); address != nullptr) {
      GENERAL_NAME* name = GENERAL_NAME_new();
      GENERAL_NAME_set0_value(name, GEN_IPADD, address);
      add(name);
    } else {
      add(TextName(GEN_DNS, host));
    }
  }
  return names;
}

// A certificate for `key`, signed by `authority`, or by itself if that is null.
absl::StatusOr<X509Ptr> Sign(EVP_PKEY* key, const IssueOptions& options,
                             const Authority* authority) {
  X509Ptr certificate(X509_new());
  X509* const x = certificate.get();
  X509* const issuer = authority == nullptr ? x : authority->certificate.get();
  std::array<unsigned char, 16> serial{};
  if (RAND_bytes(serial.data(), static_cast<int>(serial.size())) != 1) {
    return OpensslError("draw a serial number");
  }
  serial[0] = static_cast<unsigned char>((serial[0] & 0x3f) | 0x40);  // positive, full length
  const std::unique_ptr<BIGNUM, OpensslFree<BN_free>> number(
      BN_bin2bn(serial.data(), static_cast<int>(serial.size()), nullptr));
  bool ok = X509_set_version(x, X509_VERSION_3) == 1 &&
            BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(x)) != nullptr;
  X509_NAME* subject = X509_get_subject_name(x);
  ok = ok && X509_NAME_add_entry_by_NID(
                 subject, NID_commonName, MBSTRING_UTF8,
                 reinterpret_cast<const unsigned char*>(options.name.c_str()), -1, -1, 0) == 1;
  // Five minutes back, for clocks that differ a little.
  ok = ok && X509_set_issuer_name(x, X509_get_subject_name(issuer)) == 1 &&
       X509_gmtime_adj(X509_getm_notBefore(x), -300) != nullptr &&
       X509_time_adj_ex(X509_getm_notAfter(x), options.days, 0, nullptr) != nullptr &&
       X509_set_pubkey(x, key) == 1;
  const bool server = !options.hosts.empty();
  ok = ok && AddExtension(x, issuer, NID_subject_key_identifier, "hash") &&
       AddExtension(x, issuer, NID_authority_key_identifier, "keyid");
  if (authority == nullptr) {
    ok = ok && AddExtension(x, issuer, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
         AddExtension(x, issuer, NID_key_usage, "critical,keyCertSign,cRLSign");
  } else {
    ok = ok && AddExtension(x, issuer, NID_basic_constraints, "critical,CA:FALSE") &&
         AddExtension(x, issuer, NID_key_usage, "critical,digitalSignature") &&
         AddExtension(x, issuer, NID_ext_key_usage, server ? "serverAuth" : "clientAuth") &&
         X509_add1_ext_i2d(x, NID_subject_alt_name, AlternativeNames(options).get(), 0, 0) == 1;
  }
  EVP_PKEY* const signer = authority == nullptr ? key : authority->key.get();
  if (!ok || X509_sign(x, signer, EVP_sha256()) == 0) return OpensslError("make a certificate");
  return certificate;
}

absl::StatusOr<X509Ptr> MakePair(const std::string& directory, const IssueOptions& options,
                                 const Authority* authority) {
  const TlsFiles files =
      FilesOf(directory, authority == nullptr ? std::string(kAuthority) : options.name);
  for (const std::string& path : {files.certificate, files.key}) {
    if (options.renew || !fs::exists(path)) continue;
    return absl::AlreadyExistsError(
        absl::StrCat(path, " exists; ",
                     authority == nullptr ? "choose another directory"
                                          : "choose another --name, or replace it with --renew"));
  }
  const KeyPtr key(EVP_EC_gen("P-256"));
  if (!key) return OpensslError("make a key");
  LEEWAY_ASSIGN_OR_RETURN(X509Ptr certificate, Sign(key.get(), options, authority));
  const auto pem = ToPem([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate.get()); });
  if (authority != nullptr) {  // known before it can be used, so that it can be revoked
    const std::string serial = SerialOf(X509_get0_serialNumber(certificate.get()));
    LEEWAY_RETURN_IF_ERROR(Save(absl::StrCat(directory, "/issued/", serial, ".crt"), pem, kPublic));
  }
  LEEWAY_RETURN_IF_ERROR(Save(files.key, ToPem([&](BIO* bio) {
                                return PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0,
                                                                nullptr, nullptr);
                              }),
                              kSecret));
  LEEWAY_RETURN_IF_ERROR(Save(files.certificate, pem, kPublic));
  return certificate;
}

// Writes the revocation list with these more serials.
absl::Status SaveRevoked(const std::string& directory, const Authority& authority,
                         const std::vector<const ASN1_INTEGER*>& serials) {
  const CrlPtr crl(X509_CRL_new());
  const std::unique_ptr<ASN1_TIME, OpensslFree<ASN1_TIME_free>> now(X509_gmtime_adj(nullptr, 0));
  const std::unique_ptr<ASN1_TIME, OpensslFree<ASN1_TIME_free>> next(
      X509_time_adj_ex(nullptr, kDaysOfAuthority, 0, nullptr));
  bool ok = X509_CRL_set_version(crl.get(), X509_CRL_VERSION_2) == 1 &&
            X509_CRL_set_issuer_name(crl.get(),
                                     X509_get_subject_name(authority.certificate.get())) == 1 &&
            X509_CRL_set1_lastUpdate(crl.get(), now.get()) == 1 &&
            X509_CRL_set1_nextUpdate(crl.get(), next.get()) == 1;
  if (const auto text = ReadTextFile(CrlPath(directory)); text.ok()) {
    const BioPtr bio(BIO_new_mem_buf(text->data(), static_cast<int>(text->size())));
    const CrlPtr old(PEM_read_bio_X509_CRL(bio.get(), nullptr, nullptr, nullptr));
    if (!old) return absl::DataLossError(absl::StrCat(CrlPath(directory), " is damaged"));
    STACK_OF(X509_REVOKED)* entries = X509_CRL_get_REVOKED(old.get());
    for (int i = 0; i < sk_X509_REVOKED_num(entries); ++i) {
      ok = ok && X509_CRL_add0_revoked(crl.get(),
                                       X509_REVOKED_dup(sk_X509_REVOKED_value(entries, i))) == 1;
    }
  }
  for (const ASN1_INTEGER* serial : serials) {
    X509_REVOKED* entry = X509_REVOKED_new();
    ok = ok && X509_REVOKED_set_serialNumber(entry, const_cast<ASN1_INTEGER*>(serial)) == 1 &&
         X509_REVOKED_set_revocationDate(entry, now.get()) == 1 &&
         X509_CRL_add0_revoked(crl.get(), entry) == 1;
  }
  if (!ok || X509_CRL_sort(crl.get()) != 1 ||
      X509_CRL_sign(crl.get(), authority.key.get(), EVP_sha256()) == 0) {
    return OpensslError("make a revocation list");
  }
  return Save(CrlPath(directory),
              ToPem([&](BIO* bio) { return PEM_write_bio_X509_CRL(bio, crl.get()); }), kPublic);
}

absl::StatusOr<std::vector<X509Ptr>> LoadIssued(const std::string& directory) {
  std::vector<X509Ptr> all;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory + "/issued", error)) {
    LEEWAY_ASSIGN_OR_RETURN(const std::string pem, ReadTextFile(entry.path()));
    absl::StatusOr<X509Ptr> certificate = ParseCertificate(pem);
    if (!certificate.ok()) return Annotate(certificate.status(), entry.path().string());
    all.push_back(*std::move(certificate));
  }
  return all;
}

}  // namespace

std::string CrlPath(const std::string& directory) { return directory + "/revoked.crl"; }

TlsFiles FilesOf(const std::string& directory, const std::string& name) {
  return {absl::StrCat(directory, "/", kAuthority, ".crt"),
          absl::StrCat(directory, "/", name, ".crt"), absl::StrCat(directory, "/", name, ".key")};
}

absl::Status MakeAuthority(const std::string& directory, const std::string& name, int days) {
  std::error_code error;
  const bool there = fs::exists(directory);
  fs::create_directories(directory + "/issued", error);
  if (error) return FileError("cannot create", directory, error.value());
  if (!there && chmod(directory.c_str(), 0700) != 0) {
    return FileError("cannot protect", directory, errno);
  }
  IssueOptions options;
  options.name = name;
  options.days = days;
  LEEWAY_RETURN_IF_ERROR(MakePair(directory, options, nullptr).status());
  LEEWAY_ASSIGN_OR_RETURN(const Authority authority, LoadAuthority(directory));
  return SaveRevoked(directory, authority, {});
}

absl::Status Issue(const std::string& directory, const IssueOptions& options) {
  LEEWAY_RETURN_IF_ERROR(CheckName(options.name));
  if (options.days < 1 || options.days > kDaysOfAuthority) {
    return absl::InvalidArgumentError(
        absl::StrCat("--days is ", options.days, "; give 1 to ", kDaysOfAuthority));
  }
  LEEWAY_ASSIGN_OR_RETURN(const Authority authority, LoadAuthority(directory));
  return MakePair(directory, options, &authority).status();
}

absl::StatusOr<std::vector<IssuedCertificate>> ListIssued(const std::string& directory) {
  LEEWAY_ASSIGN_OR_RETURN(const Authority authority, LoadAuthority(directory));
  LEEWAY_ASSIGN_OR_RETURN(const std::string crl, ReadTextFile(CrlPath(directory)));
  const auto revoked = ParseRevoked(crl, authority.certificate.get());
  if (!revoked.ok()) return Annotate(revoked.status(), CrlPath(directory));
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<X509Ptr> all, LoadIssued(directory));
  std::vector<IssuedCertificate> list;
  for (const X509Ptr& certificate : all) {
    IssuedCertificate issued{Describe(certificate.get()), false};
    issued.revoked = revoked->count(issued.certificate.serial) > 0;
    list.push_back(std::move(issued));
  }
  std::sort(list.begin(), list.end(), [](const IssuedCertificate& a, const IssuedCertificate& b) {
    return std::tie(a.certificate.name, a.certificate.not_after, a.certificate.serial) <
           std::tie(b.certificate.name, b.certificate.not_after, b.certificate.serial);
  });
  return list;
}

absl::StatusOr<size_t> Revoke(const std::string& directory, const std::string& name) {
  LEEWAY_ASSIGN_OR_RETURN(const Authority authority, LoadAuthority(directory));
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<IssuedCertificate> list, ListIssued(directory));
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<X509Ptr> all, LoadIssued(directory));
  std::set<std::string> wanted;
  bool known = false;
  for (const IssuedCertificate& issued : list) {
    if (issued.certificate.name != name) continue;
    known = true;
    if (!issued.revoked) wanted.insert(issued.certificate.serial);
  }
  if (!known) {
    return absl::NotFoundError(absl::StrCat("no certificate named '", name, "' was made in ",
                                            directory, "; see `leeway certs list ", directory,
                                            "`"));
  }
  std::vector<const ASN1_INTEGER*> serials;
  for (const X509Ptr& certificate : all) {
    const ASN1_INTEGER* serial = X509_get0_serialNumber(certificate.get());
    if (wanted.count(SerialOf(serial)) > 0) serials.push_back(serial);
  }
  LEEWAY_RETURN_IF_ERROR(SaveRevoked(directory, authority, serials));
  return serials.size();
}

}  // namespace leeway
