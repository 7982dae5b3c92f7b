// The row of a round in the run store: the indices of the clients that counted, and the
// chain of checksums. Only the run store includes this file.
#ifndef LEEWAY_RECORDS_ROUND_ROW_H_
#define LEEWAY_RECORDS_ROUND_ROW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/digest.h"
#include "common/status.h"
#include "records/database.h"

namespace leeway {

inline std::string PackIndices(const std::vector<uint32_t>& indices) {
  std::string packed;
  packed.reserve(4 * indices.size());
  for (uint32_t index : indices) {
    for (int shift = 0; shift < 32; shift += 8) {
      packed.push_back(static_cast<char>((index >> shift) & 0xff));
    }
  }
  return packed;
}

inline std::vector<uint32_t> UnpackIndices(absl::string_view packed) {
  std::vector<uint32_t> indices(packed.size() / 4);
  for (size_t i = 0; i < 4 * indices.size(); ++i) {
    indices[i / 4] |= uint32_t{static_cast<unsigned char>(packed[i])} << (8 * (i % 4));
  }
  return indices;
}

// Of a round, over that of the round before: none can be altered, taken out or
// exchanged unnoticed.
inline int64_t Checksum(int64_t previous, const std::string& record, const std::string& accepted) {
  return static_cast<int64_t>(
      Xxh3(absl::StrCat(previous, "/", record.size(), "/", record, accepted)));
}

// The stored checksum of a round; 0 before the first.
inline absl::StatusOr<int64_t> ChecksumOf(Database& db, uint64_t round) {
  auto row = db.Query("SELECT checksum FROM rounds WHERE round = ?", round);
  LEEWAY_ASSIGN_OR_RETURN(const bool found, row.Step());
  return found ? row.Integer(0) : 0;
}

}  // namespace leeway

#endif  // LEEWAY_RECORDS_ROUND_ROW_H_
