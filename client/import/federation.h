// A federation directory as read back: one directory per client with train_x.npy,
// train_y.npy and perhaps test_x.npy, test_y.npy, and federation.json, which says
// where it came from and sums it up. Free functions; nothing is cached.
#ifndef LEEWAY_CLIENT_IMPORT_FEDERATION_H_
#define LEEWAY_CLIENT_IMPORT_FEDERATION_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/import/column_scales.h"
#include "client/import/rows.h"
#include "common/npy.h"
#include "nlohmann/json.hpp"

namespace leeway {

using Json = nlohmann::ordered_json;

struct ClientEntry {
  std::string name;       // as in the source
  std::string directory;  // under the federation's root
  uint64_t train = 0;     // samples
  uint64_t test = 0;
};

struct PartSummary {
  std::vector<uint64_t> sizes;         // samples of each client that has any
  std::map<int64_t, uint64_t> labels;  // one label per sample; empty for others
  uint64_t targets = 0;                // sequences: positions that are not PAD

  uint64_t samples() const;
};

struct FederationSummary {
  std::vector<ClientEntry> clients;
  RowType x;
  RowType y;
  PartSummary train;
  PartSummary test;
};

// One part of one client, mapped.
struct MappedPart {
  NpyArray x;
  NpyArray y;

  uint64_t samples() const { return x.shape()[0]; }
};

// The content of root/federation.json; nullopt when there is none.
absl::StatusOr<std::optional<Json>> ReadDescription(const std::string& root);

// The clients of a federation, sorted by directory; sizes are not filled in.
absl::StatusOr<std::vector<ClientEntry>> ListClients(const std::string& root);

// Maps a part and checks that x and y have equally many rows; nullopt when the
// client has no such part. Errors name the file and the client.
absl::StatusOr<std::optional<MappedPart>> MapPart(const std::string& root,
                                                  const ClientEntry& client, Part part);

// Sizes and types from the headers of all files; labels are counted only when
// asked for, since that reads them. Mixed types are an error.
absl::StatusOr<FederationSummary> Summarize(const std::string& root,
                                            std::vector<ClientEntry> clients, bool count_labels);

// The summary as it appears in federation.json.
Json SummaryToJson(const FederationSummary& summary);

// Names of the columns of x, if the description has them.
std::vector<std::string> FeatureNames(const Json& description);

// What the user should know about the data before training on them, one sentence
// each: columns without a common scale, classes that look like numbers.
std::vector<std::string> NotesOn(const Json& description, const ColumnScales& scales);

// 14708 as "14,708".
std::string Grouped(uint64_t value);

// The integer values of a whole array, as rows over its mapped bytes.
Rows RowsOf(const NpyArray& array);

}  // namespace leeway

#endif  // LEEWAY_CLIENT_IMPORT_FEDERATION_H_
