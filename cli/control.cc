#include "cli/control.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/import/partition.h"
#include "common/status.h"
#include "common/synthetic.h"
#include "records/config.h"

namespace leeway {
namespace {

namespace fs = std::filesystem;

// What a verdict says of one number of local steps.
struct Entry {
  double cost = Evidence::kUnknown;  // in loss: the gap, or the release test's difference
  Finding finding = Finding::kUncertain;
};

std::map<uint32_t, Entry> EntriesOf(const Verdict& verdict) {
  std::map<uint32_t, Entry> entries;
  for (const Evidence& one : verdict.evidence) entries[one.h] = {one.gap, one.finding};
  for (const ReleaseEvidence& one : verdict.releases) {
    entries.try_emplace(one.result.h(), Entry{one.result.difference(), one.finding});
  }
  return entries;
}

std::string EntryText(const std::map<uint32_t, Entry>& entries, uint32_t h) {
  const auto found = entries.find(h);
  if (found == entries.end()) return absl::StrFormat("%12s %-10s", "-", "-");
  return absl::StrFormat(
      "%12s %-10s",
      std::isfinite(found->second.cost) ? absl::StrFormat("%.3g", found->second.cost) : "-",
      FindingName(found->second.finding));
}

std::string Sentence(Finding real, Finding shuffled) {
  if (real == Finding::kUncertain || shuffled == Finding::kUncertain) {
    return absl::StrCat("There is not enough evidence on the ",
                        real == Finding::kUncertain ? "real" : "shuffled",
                        " split to compare: see its verdict for what would help.");
  }
  if (real == Finding::kConflict) {
    return shuffled == Finding::kHarmless
               ? "The conflict is between the clients: with the same examples dealt at random "
                 "among "
                 "them it is gone."
               : "The conflict does not come from how the clients differ: it stays when the same "
                 "examples are dealt at random. Small clients or a large step size can cause it.";
  }
  return shuffled == Finding::kHarmless
             ? "Local steps do not hurt on the real split, as they do not on a random one."
             : "Local steps do not hurt on the real split, though they do on a random one of the "
               "same "
               "sizes: repeat with another seed before relying on either.";
}

// The same examples among clients of the same names and sizes.
absl::Status WriteShuffled(const RunOptions& options, const std::string& out) {
  std::error_code error;
  if (fs::exists(out, error)) return absl::OkStatus();  // it appears when it is complete
  if (fs::exists(fs::path(options.data) / kSyntheticFile, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--control deals the examples anew, but the clients of ", options.data,
                     " are made on the fly; make them without --on-the-fly"));
  }
  LEEWAY_ASSIGN_OR_RETURN(const v1::RunConfig config, LoadConfig(options.config));
  fs::create_directories(fs::path(out).parent_path(), error);
  PartitionOptions partition;
  partition.source = options.data;
  partition.by = "shuffle";
  partition.seed = config.seed();
  partition.writer.out = out;
  return PartitionFederation(partition).status();
}

absl::StatusOr<Verdict> VerdictOf(const std::string& directory) {
  LEEWAY_ASSIGN_OR_RETURN(const RunSummary run, LoadRun(directory));
  return Judge(run);
}

}  // namespace

std::string ControlText(const Verdict& real, const Verdict& shuffled) {
  const std::map<uint32_t, Entry> a = EntriesOf(real);
  const std::map<uint32_t, Entry> b = EntriesOf(shuffled);
  std::set<uint32_t> steps;
  for (const auto& [h, entry] : a) steps.insert(h);
  for (const auto& [h, entry] : b) steps.insert(h);
  std::string text = absl::StrFormat("%6s  %-23s  %-23s\n%6s %12s %-10s %12s %-10s\n", "",
                                     "  on the real split", "  on the shuffled split", "H",
                                     "loss by H", "verdict", "loss by H", "verdict");
  for (const uint32_t h : steps) {
    absl::StrAppendFormat(&text, "%6d %s %s\n", h, EntryText(a, h), EntryText(b, h));
  }
  absl::StrAppend(&text, "\nReal split:     ", real.sentence,
                  "\nShuffled split: ", shuffled.sentence, "\n\n",
                  Sentence(real.finding, shuffled.finding), "\n");
  return text;
}

int ControlCommand(const RunOptions& options) {
  const auto fail = [](const absl::Status& status, int code) {
    absl::FPrintF(stderr, "leeway: %s\n", status.message());
    return code;
  };
  RunOptions real = options;
  real.control = false;
  real.brief = true;
  while (real.out.size() > 1 && real.out.back() == '/') real.out.pop_back();
  absl::FPrintF(stderr, "the real split, in %s\n", real.out);
  if (const int code = RunCommand(real); code != kExitOk) return code;
  RunOptions shuffled = real;
  shuffled.out = real.out + "/control/run";
  shuffled.data = real.out + "/control/data";
  shuffled.dashboard.clear();
  if (auto status = WriteShuffled(real, shuffled.data); !status.ok()) {
    return fail(status, kExitUsage);
  }
  absl::FPrintF(stderr, "the shuffled split, in %s\n", shuffled.out);
  if (const int code = RunCommand(shuffled); code != kExitOk) return code;
  const absl::StatusOr<Verdict> first = VerdictOf(real.out);
  if (!first.ok()) return fail(first.status(), kExitUsage);
  const absl::StatusOr<Verdict> second = VerdictOf(shuffled.out);
  if (!second.ok()) return fail(second.status(), kExitUsage);
  absl::PrintF("%s", ControlText(*first, *second));
  return std::fflush(stdout) == 0 ? kExitOk : kExitFailed;
}

}  // namespace leeway
