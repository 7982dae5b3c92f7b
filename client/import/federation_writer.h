// Writes a federation directory: the one door through which all importers and
// partitioners put samples on disk. Everything goes to a temporary sibling
// (OUT.partial-PID) that becomes OUT in Finish; without Finish it is removed, so
// nothing half-written is ever seen. Memory is bounded by one Append. Not
// thread-safe.
#ifndef LEEWAY_CLIENT_IMPORT_FEDERATION_WRITER_H_
#define LEEWAY_CLIENT_IMPORT_FEDERATION_WRITER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/import/federation.h"
#include "client/import/rows.h"

namespace leeway {

struct WriterOptions {
  std::string out;
  uint64_t min_samples = 1;     // clients with fewer training samples are left out
  int64_t classes = 0;          // labels must be below it; 0: as many as found
  std::vector<uint64_t> shape;  // of one row of x; empty: as in the source
};

// Where a process with this id writes before `out` is complete.
std::string PartialPath(const std::string& out, int process);

// Directory of a federation's central test set.
inline constexpr char kEvaluator[] = "evaluator";

class FederationWriter {
 public:
  // Refuses an `out` that exists.
  static absl::StatusOr<std::unique_ptr<FederationWriter>> Create(const WriterOptions& options);
  ~FederationWriter();
  FederationWriter(const FederationWriter&) = delete;
  FederationWriter& operator=(const FederationWriter&) = delete;

  // Adds samples to a client's part. Training data of a client come before its
  // test data: test data of a client without training data are left out and
  // counted, as are clients that only ever come with no sample. Errors name the client: rows of
  // another type than all before, labels or token ids out of range, values that are not finite.
  absl::Status Append(absl::string_view client, Part part, const Rows& x, const Rows& y);

  // Adds samples to the central test set, the directory `evaluator` with a test part
  // alone: what `leeway run` and `leeway-client --evaluator` take.
  absl::Status AppendCentral(const Rows& x, const Rows& y);

  // From now on x and y of rows with a shape are token ids below `size`.
  void SetVocabulary(uint64_t size) { vocabulary_ = size; }

  // Adds a file beside federation.json.
  absl::Status WriteFile(const std::string& name, absl::string_view content);

  // Completes all files, writes federation.json (`description`, then what was
  // left out, then the summary) and renames. Returns the content of
  // federation.json.
  absl::StatusOr<Json> Finish(Json description);

 private:
  struct Client {
    std::string name;
    uint64_t samples[2] = {0, 0};  // train, test
  };
  explicit FederationWriter(const WriterOptions& options);

  absl::Status CheckTypes(absl::string_view client, const Rows& x, const Rows& y);
  absl::Status CheckValues(const Rows& x, const Rows& y) const;
  std::string FilePath(const std::string& directory, Part part, char axis) const;
  absl::Status Complete(const std::string& directory, const Client& client) const;
  absl::StatusOr<uint64_t> DropSmallClients();
  absl::StatusOr<Json> WriteDescription(Json description);

  const WriterOptions options_;
  const std::string partial_;
  bool finished_ = false;
  uint64_t vocabulary_ = 0;
  ColumnScales scales_;  // of the training parts
  std::optional<RowType> x_type_;
  std::optional<RowType> y_type_;
  std::string first_client_;
  std::map<std::string, Client> clients_;  // by directory name
  Client central_{kEvaluator, {0, 0}};     // the evaluator
  std::set<std::string> test_only_;        // clients with test data alone
  std::set<std::string> empty_;            // clients that came with no sample
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_IMPORT_FEDERATION_WRITER_H_
