// What a run's release tests say of each number of local steps: harmless, a conflict, or why
// there is not enough evidence (the rule is in docs/measures.md). It needs no optimum, so it
// holds for networks, too. Pure functions of a run's records and config.
#ifndef LEEWAY_RECORDS_RELEASE_EVIDENCE_H_
#define LEEWAY_RECORDS_RELEASE_EVIDENCE_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "proto/record.pb.h"
#include "proto/run.pb.h"
#include "records/evidence.h"
#include "records/show.h"

namespace leeway {

struct ReleaseEvidence {
  v1::ReleaseResult result;
  std::string when;  // "phase 2", "after 50 rounds of phase 1"
  Finding finding = Finding::kUncertain;
  std::string doubt;  // why it is uncertain, and the remedy; else empty
  std::optional<v1::WhoPays> who_pays;
};

// By h, then step size; of the same tested twice, the last.
std::vector<ReleaseEvidence> CollectReleases(const RunSummary& run);
// Numbers of steps that the config's release tests list and that have no result yet, by size.
std::vector<uint32_t> MissingReleases(const RunSummary& run);

// One sentence for what all of them say together; not for an empty list.
std::string ReleaseSentence(const RunSummary& run, const std::vector<ReleaseEvidence>& all,
                            Finding finding);
// A table for people, with a line before it that says what it is.
std::string ReleaseTable(const std::vector<ReleaseEvidence>& all);
// All fields of the result, "when", "verdict", "doubt" and "who_pays".
nlohmann::ordered_json ReleaseJson(const ReleaseEvidence& one);

}  // namespace leeway

#endif  // LEEWAY_RECORDS_RELEASE_EVIDENCE_H_
