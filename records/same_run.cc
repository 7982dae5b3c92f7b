#include "records/same_run.h"

#include <google/protobuf/util/message_differencer.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "records/config.h"

namespace leeway {
namespace {

// A field that differs. Not set: empty.
struct Difference {
  std::string field, stored, given;
};

std::vector<Difference> Differences(const v1::RunConfig& stored, const v1::RunConfig& given) {
  google::protobuf::util::MessageDifferencer differencer;
  std::string report;  // "modified: cohort.size: 3 -> 5", a line each
  differencer.ReportDifferencesToString(&report);
  std::vector<Difference> all;
  if (differencer.Compare(stored, given)) return all;
  for (const absl::string_view line : absl::StrSplit(report, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(": ", 2));
    if (parts.size() < 3) {
      all.push_back({std::string(line), "", ""});
    } else if (parts[0] == "added") {
      all.push_back({parts[1], "", parts[2]});
    } else if (parts[0] == "deleted") {
      all.push_back({parts[1], parts[2], ""});
    } else {
      const std::vector<std::string> values = absl::StrSplit(parts[2], absl::MaxSplits(" -> ", 1));
      all.push_back({parts[1], values.front(), values.back()});
    }
  }
  return all;
}

std::string OrNotSet(const std::string& value) { return value.empty() ? "not set" : value; }

// Who reports when has no part in what the run is.
void ClearWhatMayChange(v1::RunConfig& config) {
  config.clear_name();
  config.clear_limits();
  if (config.has_initial()) config.mutable_initial()->clear_file();  // its contents count
  v1::Cohort& cohort = *config.mutable_cohort();
  cohort.clear_minimum_reports();
  cohort.clear_deadline_seconds();
  cohort.clear_attempts();
  cohort.clear_replace_after_seconds();
  cohort.clear_return_seconds();
  cohort.clear_gather_seconds();
  cohort.clear_absent_after_seconds();
  cohort.clear_closed();
}

}  // namespace

ConfigChanges CompareConfigs(v1::RunConfig stored, v1::RunConfig given) {
  // A run of an earlier version has none of the newer defaults.
  CompleteConfig(stored);
  CompleteConfig(given);
  ConfigChanges changes;
  const std::vector<Difference> all = Differences(stored, given);
  ClearWhatMayChange(stored);
  ClearWhatMayChange(given);
  const std::vector<Difference> refused = Differences(stored, given);
  if (!refused.empty()) {
    changes.refused = absl::StrCat(refused[0].field, " is ", OrNotSet(refused[0].stored),
                                   " there and ", OrNotSet(refused[0].given), " here");
    return changes;
  }
  changes.allowed = absl::StrJoin(all, "; ", [](std::string* out, const Difference& one) {
    absl::StrAppend(out, one.field, " from ", OrNotSet(one.stored), " to ", OrNotSet(one.given));
  });
  return changes;
}

}  // namespace leeway
