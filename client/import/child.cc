#include "client/import/child.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_format.h"

namespace leeway {
namespace {

constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP};
constexpr int kExitFailed = 1;
constexpr int kExitSignal = 128;

void Limit(__rlimit_resource resource, double most, rlim_t grace = 0) {
  const auto value = static_cast<rlim_t>(most);
  const rlimit limit = {value, value + grace};
  setrlimit(resource, &limit);
}

// In the child. What cannot be limited (some containers forbid it) stays as it is:
// the other limits still hold.
void Restrict(const ChildLimits& limits) {
  Limit(RLIMIT_AS, limits.memory_gib * 0x1p30);
  // SIGXCPU, which tells, and only later SIGKILL, which does not.
  Limit(RLIMIT_CPU, limits.cpu_minutes * 60, /*grace=*/5);
  Limit(RLIMIT_CORE, 0);
  Limit(RLIMIT_NPROC, 0);  // no further processes
  Limit(RLIMIT_NOFILE, 256);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  // A file may name a compression plugin, which HDF5 would load as code.
  setenv("HDF5_PLUGIN_PRELOAD", "::", 1);
}

[[noreturn]] void BeChild(const ChildLimits& limits, const sigset_t& mask,
                          const std::function<int()>& work) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  if (limits.restricted) Restrict(limits);
  const int code = work();
  std::fflush(nullptr);
  _exit(code);
}

// Waits for the child; a stop signal is passed on to it. Returns that signal, or 0.
int Await(pid_t child, const sigset_t& signals, int* status) {
  int stop = 0;
  while (waitpid(child, status, WNOHANG) != child) {
    const int signal = sigwaitinfo(&signals, nullptr);
    if (signal <= 0 || signal == SIGCHLD) continue;
    stop = signal;
    kill(child, signal);
    kill(child, SIGCONT);  // one that is suspended would not notice
  }
  return stop;
}

void Explain(int signal, const ChildLimits& limits) {
  if (signal == SIGXCPU) {
    absl::FPrintF(stderr,
                  "leeway: ended after %g minutes of computing; if you trust the file, raise "
                  "--max-minutes\n",
                  limits.cpu_minutes);
    return;
  }
  absl::FPrintF(stderr, "leeway: ended by signal %d (%s); nothing was written\n", signal,
                strsignal(signal));
}

}  // namespace

int RunInChild(const ChildLimits& limits, const std::function<int()>& work,
               const std::function<void(pid_t)>& cleanup) {
  sigset_t signals;
  sigset_t before;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  for (const int signal : kStopSignals) sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, &before);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) BeChild(limits, before, work);
  if (child < 0) {
    absl::FPrintF(stderr, "leeway: cannot start a process: %s\n", std::strerror(errno));
    sigprocmask(SIG_SETMASK, &before, nullptr);
    return kExitFailed;
  }
  int status = 0;
  const int stop = Await(child, signals, &status);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  cleanup(child);
  const int signal = WTERMSIG(status);
  const bool stopped = stop != 0 || signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
  if (stopped) {
    absl::FPrintF(stderr, "\nleeway: stopped; nothing was written\n");
    return kExitSignal + (stop != 0 ? stop : signal);
  }
  Explain(signal, limits);
  return kExitFailed;
}

}  // namespace leeway
