// Sums up a federation directory and prints the summary for people.
#ifndef LEEWAY_CLIENT_IMPORT_DESCRIBE_H_
#define LEEWAY_CLIENT_IMPORT_DESCRIBE_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/import/federation.h"

namespace leeway {

// The content of federation.json, checked against the headers of the .npy files;
// without such a file, or with `recount`, the labels are counted anew. `recount`
// also checks that labels and token ids are in range.
absl::StatusOr<Json> DescribeFederation(const std::string& root, bool recount);

// A summary (as in federation.json) as a table.
std::string SummaryTable(const Json& federation);

}  // namespace leeway

#endif  // LEEWAY_CLIENT_IMPORT_DESCRIBE_H_
