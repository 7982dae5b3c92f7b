#include "cli/drift.h"

#include <cstdio>

#include "absl/strings/str_format.h"
#include "cli/run.h"
#include "records/verdict_text.h"

namespace leeway {
namespace {

int PrintError(absl::string_view text, int code) {
  absl::FPrintF(stderr, "leeway: %s\n", text);
  return code;
}

}  // namespace

int DriftCommand(const DriftOptions& options) {
  const absl::StatusOr<RunSummary> run = LoadRun(options.directory);
  if (!run.ok()) {
    return PrintError(run.status().message(),
                      absl::IsNotFound(run.status()) ? kExitUsage : kExitFailed);
  }
  const absl::StatusOr<Verdict> verdict = Judge(*run);
  if (!verdict.ok()) return PrintError(verdict.status().message(), kExitUsage);
  absl::PrintF("%s", options.json ? VerdictJson(*verdict) : VerdictText(*verdict));
  if (!options.json && verdict->finding == Finding::kConflict) {
    absl::PrintF("\nTo try what helps: leeway remedies %s --data %s\n", options.directory,
                 options.data.empty() ? "DATA" : options.data);
  }
  return std::fflush(stdout) == 0 ? kExitOk : kExitFailed;
}

}  // namespace leeway
