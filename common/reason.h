// The kind of a refusal, as one word that travels with its Status: what counters
// are kept by. Statuses without one are counted by their code.
#ifndef LEEWAY_COMMON_REASON_H_
#define LEEWAY_COMMON_REASON_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace leeway {

inline constexpr char kReasonKey[] = "leeway/reason";

// Keeps a reason that the status already has.
inline absl::Status WithReason(absl::Status status, absl::string_view reason) {
  if (!status.ok() && !status.GetPayload(kReasonKey)) {
    status.SetPayload(kReasonKey, absl::Cord(reason));
  }
  return status;
}

inline std::string ReasonOf(const absl::Status& status) {
  if (const auto reason = status.GetPayload(kReasonKey)) return std::string(*reason);
  return absl::AsciiStrToLower(absl::StatusCodeToString(status.code()));
}

}  // namespace leeway

#endif  // LEEWAY_COMMON_REASON_H_
