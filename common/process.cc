#include "common/process.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

namespace leeway {
namespace {

sigset_t TerminationSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

// Blocks until a signal or, if asked, the end of standard input.
void AwaitTermination(int signals, bool watch_stdin) {
  pollfd fds[2] = {{signals, POLLIN, 0}, {watch_stdin ? STDIN_FILENO : -1, POLLIN, 0}};
  while (true) {
    if (poll(fds, 2, -1) < 0) continue;
    if (fds[0].revents != 0) {
      signalfd_siginfo info;
      [[maybe_unused]] const ssize_t n = read(signals, &info, sizeof info);
      return;
    }
    char bytes[256];
    if (fds[1].revents != 0 && read(STDIN_FILENO, bytes, sizeof bytes) <= 0) return;
  }
}

}  // namespace

void BlockTerminationSignals() {
  const sigset_t set = TerminationSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void OnTermination(bool watch_stdin, std::function<void()> stop) {
  const sigset_t set = TerminationSignals();
  const int signals = signalfd(-1, &set, SFD_CLOEXEC);
  std::thread([signals, watch_stdin, stop = std::move(stop)] {
    AwaitTermination(signals, watch_stdin);
    stop();
    AwaitTermination(signals, false);
    _exit(130);
  }).detach();
}

uint64_t RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  rlimit raised = limit;
  raised.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}

}  // namespace leeway
