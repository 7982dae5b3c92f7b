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
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cli/json.h"
#include "cli/run.h"
#include "common/status.h"
#include "server/durable_file.h"

namespace leeway {
namespace {

namespace fs = std::filesystem;

constexpr char kAuthority[] = "ca";
constexpr char kServerName[] = "server";
constexpr int kDaysOfAuthority = 3650;
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

std::string CrlPath(const std::string& directory) { return directory + "/revoked.crl"; }

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

std::string WhatFor(const Certificate& certificate) {
  if (!certificate.hosts.empty()) return absl::StrJoin(certificate.hosts, " ");
  std::vector<std::string> what;
  for (const Grant& grant : certificate.grants) {
    what.push_back(absl::StrCat(
        grant.client.empty() ? "any client" : grant.client,
        grant.examples > 0 ? absl::StrCat(" (at most ", grant.examples, " examples)") : ""));
    if (what.size() == 3 && certificate.grants.size() > 4) {
      what.push_back(absl::StrCat("... ", certificate.grants.size(), " clients in all"));
      break;
    }
  }
  if (certificate.observer) what.push_back("may watch");
  return absl::StrJoin(what, ", ");
}

const char* KindOf(const IssuedCertificate& issued) {
  return issued.certificate.hosts.empty() ? "client" : "server";
}

const char* StateOf(const IssuedCertificate& issued) {
  if (issued.revoked) return "revoked";
  return absl::Now() > issued.certificate.not_after ? "expired" : "valid";
}

std::string ListJson(const std::vector<IssuedCertificate>& all) {
  JsonWriter json;
  json.BeginArray();
  for (const IssuedCertificate& issued : all) {
    const Certificate& c = issued.certificate;
    json.BeginObject().Field("name", c.name).Field("kind", KindOf(issued));
    json.Field("state", StateOf(issued));
    json.Field("expires", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", c.not_after, absl::UTCTimeZone()));
    json.Key("hosts").BeginArray();
    for (const std::string& host : c.hosts) json.Value(host);
    json.EndArray().Key("clients").BeginArray();
    for (const Grant& grant : c.grants) {  // without a client: any; without examples: no cap
      json.BeginObject().Key("client");
      grant.client.empty() ? json.Null() : json.Value(grant.client);
      json.Key("examples");
      grant.examples == 0 ? json.Null() : json.Value(grant.examples);
      json.EndObject();
    }
    json.EndArray().Key("observer").Bool(c.observer).EndObject();
  }
  return json.EndArray().text();
}

absl::Status PrintList(const std::string& directory, bool json) {
  LEEWAY_ASSIGN_OR_RETURN(const std::vector<IssuedCertificate> all, ListIssued(directory));
  if (json) {
    absl::PrintF("%s\n", ListJson(all));
    return absl::OkStatus();
  }
  absl::PrintF("%-20s %-7s %-8s %-20s %s\n", "NAME", "KIND", "STATE", "EXPIRES", "FOR");
  for (const IssuedCertificate& issued : all) {
    const Certificate& c = issued.certificate;
    absl::PrintF("%-20s %-7s %-8s %-20s %s\n", c.name, KindOf(issued), StateOf(issued),
                 absl::FormatTime("%Y-%m-%d %H:%M UTC", c.not_after, absl::UTCTimeZone()),
                 WhatFor(c));
  }
  return absl::OkStatus();
}

}  // namespace

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

namespace {

// What the subcommands' callbacks use; lives as long as the app.
struct CertsOptions {
  std::string directory;
  std::string authority = "Leeway";
  int authority_days = kDaysOfAuthority;
  IssueOptions issue;
  std::vector<std::string> clients;
  uint64_t examples = 0;
  bool any = false;
  std::string revoke;
  bool json = false;
};

absl::Status IssueClient(CertsOptions& options) {
  IssueOptions& issue = options.issue;
  for (const std::string& id : options.clients) issue.grants.push_back({id, options.examples});
  if (options.any) issue.grants.push_back({"", options.examples});
  if (issue.grants.empty() && !issue.observer) {
    return absl::InvalidArgumentError(
        "name the clients that the holder may host, or give --any or --observer");
  }
  if (issue.name.empty()) {
    issue.name = !options.clients.empty() ? options.clients[0] : options.any ? "host" : "observer";
  }
  return Issue(options.directory, issue);
}

absl::Status PrintIssued(const CertsOptions& options) {
  const TlsFiles files = FilesOf(options.directory, options.issue.name);
  absl::PrintF("made %s and %s (keep the .key private)\n", files.certificate, files.key);
  return absl::OkStatus();
}

}  // namespace

CLI::App* AddCertsCommands(CLI::App& app, int* exit_code) {
  CLI::App* certs = app.add_subcommand("certs", "Make, list and revoke certificates (mutual TLS)");
  certs->require_subcommand(1);
  certs->footer(
      "Examples:\n"
      "  leeway certs init pki\n"
      "  leeway certs server pki --host fl.example.org\n"
      "  leeway certs client pki hospital_a --examples 5000\n"
      "  leeway-server ... --tls-ca pki/ca.crt --tls-cert pki/server.crt --tls-key pki/server.key "
      "--revoked pki/revoked.crl\n"
      "  leeway-client ... --tls-ca ca.crt --tls-cert hospital_a.crt --tls-key hospital_a.key\n"
      "A client process needs ca.crt and its own pair, and nothing else of the directory.");
  auto options = std::make_shared<CertsOptions>();
  const auto add = [&](const char* name, const char* help,
                       std::function<absl::Status(CertsOptions&)> work) {
    CLI::App* command = certs->add_subcommand(name, help);
    command->add_option("DIR", options->directory, "The authority's directory")->required();
    command->callback([options, exit_code, work = std::move(work)] {
      const absl::Status status = work(*options);
      if (status.ok()) return;
      absl::FPrintF(stderr, "leeway: %s\n", std::string(status.message()));
      const bool usage = absl::IsInvalidArgument(status) || absl::IsAlreadyExists(status) ||
                         absl::IsNotFound(status);
      *exit_code = usage ? kExitUsage : kExitFailed;
    });
    return command;
  };
  CLI::App* init = add("init", "Make an authority in a new directory", [](CertsOptions& o) {
    LEEWAY_RETURN_IF_ERROR(MakeAuthority(o.directory, o.authority, o.authority_days));
    absl::PrintF("made an authority in %s; keep %s/ca.key private\n", o.directory, o.directory);
    return absl::OkStatus();
  });
  init->add_option("--name", options->authority, "The authority's name")->capture_default_str();
  init->add_option("--days", options->authority_days, "Days it is valid")
      ->check(CLI::Range(1, kDaysOfAuthority))
      ->capture_default_str();

  CLI::App* server = add("server", "Make the server's certificate", [](CertsOptions& o) {
    // Tools on the server's own machine reach it by these.
    for (const char* local : {"localhost", "127.0.0.1", "::1"}) {
      if (std::find(o.issue.hosts.begin(), o.issue.hosts.end(), local) == o.issue.hosts.end()) {
        o.issue.hosts.push_back(local);
      }
    }
    if (o.issue.name.empty()) o.issue.name = kServerName;
    LEEWAY_RETURN_IF_ERROR(Issue(o.directory, o.issue));
    return PrintIssued(o);
  });
  server->add_option(
      "--host", options->issue.hosts,
      "Names and addresses that clients reach it by; localhost is always among them");

  CLI::App* client = add("client", "Make a client process's certificate", [](CertsOptions& o) {
    LEEWAY_RETURN_IF_ERROR(IssueClient(o));
    return PrintIssued(o);
  });
  client->add_option("ID", options->clients, "Clients that the holder may host");
  client->add_option("--examples", options->examples,
                     "Most training examples each of them may claim (default: no cap)");
  client->add_flag("--any", options->any, "The holder may host any client: a trusted machine");
  client->add_flag("--observer", options->issue.observer, "The holder may watch the run");

  for (CLI::App* command : {server, client}) {
    command->add_option("--name", options->issue.name, "Name of the files and in the list");
    command->add_option("--days", options->issue.days, "Days it is valid")->capture_default_str();
    command->add_flag("--renew", options->issue.renew, "Replace the files of this name");
  }
  CLI::App* list = add("list", "List all certificates made here, with their expiry",
                       [](CertsOptions& o) { return PrintList(o.directory, o.json); });
  list->add_flag("--json", options->json, "For programs");
  CLI::App* revoke = add("revoke", "Revoke the certificates of a name", [](CertsOptions& o) {
    LEEWAY_ASSIGN_OR_RETURN(const size_t count, Revoke(o.directory, o.revoke));
    absl::PrintF("revoked %d certificate(s) of %s in %s\n", count, o.revoke, CrlPath(o.directory));
    return absl::OkStatus();
  });
  revoke->add_option("NAME", options->revoke, "As in the list")->required();
  return certs;
}

}  // namespace leeway
