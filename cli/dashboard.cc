#include "cli/dashboard.h"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_format.h"
#include "cli/run.h"
#include "cli/spawn.h"
#include "dashboard/http.h"
#include "records/show.h"

namespace leeway {
namespace {

int Fail(const absl::Status& status) {
  absl::FPrintF(stderr, "leeway: %s\n", std::string(status.message()));
  return absl::IsNotFound(status) || absl::IsInvalidArgument(status) ? kExitUsage : kExitFailed;
}

// Tells the feed of every write to the run's database, until a signal comes.
void FollowWrites(const std::string& directory, Signals& signals, Feed& feed) {
  const int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  inotify_add_watch(watch, directory.c_str(), IN_MODIFY | IN_CREATE | IN_MOVED_TO);
  while (true) {
    pollfd waits[] = {{.fd = signals.fd(), .events = POLLIN, .revents = 0},
                      {.fd = watch, .events = POLLIN, .revents = 0}};
    poll(waits, watch < 0 ? 1 : 2, -1);
    if (signals.Take() != 0) break;
    alignas(inotify_event) char buffer[16384];
    bool written = false;
    while (watch >= 0 && read(watch, buffer, sizeof(buffer)) > 0) written = true;
    if (written) feed.Changed();
  }
  close(watch);
}

}  // namespace

int DashboardCommand(const DashboardOptions& options) {
  Signals signals;
  // For the error's sake: a missing run is told here with its remedy.
  if (const absl::StatusOr<RunSummary> run = LoadRun(options.directory); !run.ok()) {
    return Fail(run.status());
  }
  Dashboard::Options http;
  http.listen = options.listen;
  http.feed.directory = options.directory;
  const absl::StatusOr<std::unique_ptr<Dashboard>> dashboard = Dashboard::Start(std::move(http));
  if (!dashboard.ok()) return Fail(dashboard.status());
  absl::PrintF("dashboard of %s on %s (Ctrl-C ends it)\n", options.directory, (*dashboard)->url());
  std::fflush(stdout);
  FollowWrites(options.directory, signals, (*dashboard)->feed());
  (*dashboard)->Stop();
  return kExitOk;
}

}  // namespace leeway
