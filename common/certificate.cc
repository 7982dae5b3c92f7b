#include "common/certificate.h"

#include <arpa/inet.h>
#include <openssl/pem.h>

#include <array>
#include <ctime>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status.h"

namespace leeway {
namespace {

constexpr char kClientUri[] = "leeway:client/";
constexpr char kEvaluatorUri[] = "leeway:evaluator/";
constexpr char kExamples[] = "?examples=";

std::string PercentEncode(absl::string_view text) {
  std::string out;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-' ||
        c == '~') {
      out.push_back(c);
    } else {
      absl::StrAppend(&out, "%", absl::BytesToHexString({&c, 1}));
    }
  }
  return out;
}

std::optional<std::string> PercentDecode(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    const absl::string_view digits = text.substr(i + 1, 2);
    if (digits.size() != 2 || !absl::ascii_isxdigit(static_cast<unsigned char>(digits[0])) ||
        !absl::ascii_isxdigit(static_cast<unsigned char>(digits[1]))) {
      return std::nullopt;
    }
    out += absl::HexStringToBytes(digits);
    i += 2;
  }
  return out;
}

absl::Time FromAsn1(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromUnixSeconds(timegm(&parts));
}

std::string TextOf(const ASN1_STRING* text) {
  return std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                     static_cast<size_t>(ASN1_STRING_length(text)));
}

std::string AddressOf(const ASN1_OCTET_STRING* bytes) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const int family = ASN1_STRING_length(bytes) == 4 ? AF_INET : AF_INET6;
  if (family == AF_INET6 && ASN1_STRING_length(bytes) != 16) return "?";
  inet_ntop(family, ASN1_STRING_get0_data(bytes), text.data(), text.size());
  return text.data();
}

BioPtr Reading(absl::string_view text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

}  // namespace

std::string GrantUri(const Grant& grant) {
  std::string uri = absl::StrCat(grant.evaluator ? kEvaluatorUri : kClientUri,
                                 grant.client.empty() ? "*" : PercentEncode(grant.client));
  if (grant.examples > 0) absl::StrAppend(&uri, kExamples, grant.examples);
  return uri;
}

std::optional<Grant> ParseGrantUri(absl::string_view uri) {
  Grant grant;
  grant.evaluator = absl::ConsumePrefix(&uri, kEvaluatorUri);
  if (!grant.evaluator && !absl::ConsumePrefix(&uri, kClientUri)) return std::nullopt;
  if (const size_t query = uri.find('?'); query != absl::string_view::npos) {
    absl::string_view cap = uri.substr(query);
    if (!absl::ConsumePrefix(&cap, kExamples) || !absl::SimpleAtoi(cap, &grant.examples) ||
        grant.examples == 0) {
      return std::nullopt;
    }
    uri = uri.substr(0, query);
  }
  if (uri == "*") return grant;
  const std::optional<std::string> id = PercentDecode(uri);
  if (!id || id->empty()) return std::nullopt;
  grant.client = *id;
  return grant;
}

std::string SerialOf(const ASN1_INTEGER* serial) {
  const std::unique_ptr<BIGNUM, OpensslFree<BN_free>> number(ASN1_INTEGER_to_BN(serial, nullptr));
  char* digits = BN_bn2hex(number.get());
  std::string text = absl::AsciiStrToLower(digits);
  OPENSSL_free(digits);
  return text;
}

Certificate Describe(X509* certificate) {
  Certificate out;
  std::array<char, 256> name{};
  if (X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name.data(),
                                static_cast<int>(name.size())) > 0) {
    out.name = name.data();
  }
  out.serial = SerialOf(X509_get0_serialNumber(certificate));
  out.not_before = FromAsn1(X509_get0_notBefore(certificate));
  out.not_after = FromAsn1(X509_get0_notAfter(certificate));
  const NamesPtr names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* entry = sk_GENERAL_NAME_value(names.get(), i);
    if (entry->type == GEN_DNS) out.hosts.push_back(TextOf(entry->d.dNSName));
    if (entry->type == GEN_IPADD) out.hosts.push_back(AddressOf(entry->d.iPAddress));
    if (entry->type != GEN_URI) continue;
    const std::string uri = TextOf(entry->d.uniformResourceIdentifier);
    if (uri == kObserverUri) out.observer = true;
    if (std::optional<Grant> grant = ParseGrantUri(uri)) out.grants.push_back(*std::move(grant));
  }
  return out;
}

absl::StatusOr<X509Ptr> ParseCertificate(absl::string_view pem) {
  const BioPtr bio = Reading(pem);
  X509Ptr certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  if (!certificate) return absl::InvalidArgumentError("is not a certificate in PEM form");
  return certificate;
}

absl::StatusOr<std::set<std::string>> ParseRevoked(absl::string_view pem, X509* authority) {
  const BioPtr bio = Reading(pem);
  const CrlPtr crl(PEM_read_bio_X509_CRL(bio.get(), nullptr, nullptr, nullptr));
  if (!crl) return absl::InvalidArgumentError("is not a revocation list in PEM form");
  if (X509_CRL_verify(crl.get(), X509_get0_pubkey(authority)) != 1) {
    return absl::InvalidArgumentError(
        "is not signed by the authority in --tls-ca; use the revoked.crl beside that ca.crt");
  }
  std::set<std::string> serials;
  STACK_OF(X509_REVOKED)* entries = X509_CRL_get_REVOKED(crl.get());
  for (int i = 0; i < sk_X509_REVOKED_num(entries); ++i) {
    serials.insert(SerialOf(X509_REVOKED_get0_serialNumber(sk_X509_REVOKED_value(entries, i))));
  }
  return serials;
}

}  // namespace leeway
