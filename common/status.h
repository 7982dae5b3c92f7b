// Status plumbing: early return on error, as two macros.
#ifndef LEEWAY_COMMON_STATUS_H_
#define LEEWAY_COMMON_STATUS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace leeway {

// Puts `context` in front of an error's message; leaves OK as it is.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

}  // namespace leeway

#define LEEWAY_RETURN_IF_ERROR(expr)                 \
  do {                                               \
    absl::Status leeway_status_ = (expr);            \
    if (!leeway_status_.ok()) return leeway_status_; \
  } while (false)

#define LEEWAY_CONCAT_INNER_(a, b) a##b
#define LEEWAY_CONCAT_(a, b) LEEWAY_CONCAT_INNER_(a, b)
#define LEEWAY_ASSIGN_OR_RETURN(lhs, expr) \
  LEEWAY_ASSIGN_OR_RETURN_(LEEWAY_CONCAT_(leeway_or_, __LINE__), lhs, expr)
#define LEEWAY_ASSIGN_OR_RETURN_(tmp, lhs, expr) \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return std::move(tmp).status(); \
  lhs = *std::move(tmp)

#endif  // LEEWAY_COMMON_STATUS_H_
