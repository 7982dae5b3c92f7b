// What a Leeway certificate says: whom it is for, and until when. A client's
// certificate names each client that its process may host as a URI,
//   leeway:client/<id>?examples=<cap>
// with the id percent-encoded; the id * stands for any client (a trusted host),
// and without examples there is no cap. leeway:observer may watch the run only.
#ifndef LEEWAY_COMMON_CERTIFICATE_H_
#define LEEWAY_COMMON_CERTIFICATE_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/openssl_handles.h"

namespace leeway {

inline constexpr char kObserverUri[] = "leeway:observer";

// A client that the holder may host.
struct Grant {
  std::string client;     // empty: any client
  uint64_t examples = 0;  // most training examples it may claim; 0: no cap
  bool operator==(const Grant&) const = default;
};

std::string GrantUri(const Grant& grant);
// Nothing if the text is not such a URI.
std::optional<Grant> ParseGrantUri(absl::string_view uri);

struct Certificate {
  std::string name;    // common name
  std::string serial;  // hexadecimal
  absl::Time not_before;
  absl::Time not_after;
  std::vector<Grant> grants;
  bool observer = false;
  std::vector<std::string> hosts;  // a server's names and addresses
};

Certificate Describe(X509* certificate);
// The first certificate in a PEM text.
absl::StatusOr<X509Ptr> ParseCertificate(absl::string_view pem);
// Serials in a PEM revocation list that the authority has signed.
absl::StatusOr<std::set<std::string>> ParseRevoked(absl::string_view pem, X509* authority);
std::string SerialOf(const ASN1_INTEGER* serial);

}  // namespace leeway

#endif  // LEEWAY_COMMON_CERTIFICATE_H_
