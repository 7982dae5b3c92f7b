// What a Leeway certificate says: whom it is for, and until when. A client's
// certificate names each client that its process may host as a URI,
//   leeway:client/<id>?examples=<cap>
//   leeway:evaluator/<id>?examples=<cap>
// with the id percent-encoded; the id * stands for any (a trusted host). An evaluator holds a
// central test set: to act as one needs a grant of its own. Without examples the cap is
// kDefaultExamples. leeway:observer may watch the run only.
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

// What a client may claim without a cap of its own: a weight that goes by examples must have a
// bound.
inline constexpr uint64_t kDefaultExamples = 1'000'000;
// No certificate allows more.
inline constexpr uint64_t kMostExamples = uint64_t{1} << 40;

// A client or evaluator that the holder may host.
struct Grant {
  std::string client;      // empty: any
  uint64_t examples = 0;   // most examples it may claim for training and for tests; 0: the default
  bool evaluator = false;  // holds a central test set, and does not train
  uint64_t cap() const { return examples > 0 ? examples : kDefaultExamples; }
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
