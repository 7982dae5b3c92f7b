#include "cli/spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

namespace leeway {
namespace {

constexpr size_t kReportLines = 10;

// What one posix_spawn needs, freed together.
class SpawnSetup {
 public:
  SpawnSetup() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSetup() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;

  // Returns an errno value.
  int Prepare(int stdin_fd, const std::string& log, const sigset_t& mask) {
    sigset_t defaults;
    sigemptyset(&defaults);
    for (int signal : {SIGINT, SIGTERM, SIGPIPE, SIGCHLD}) sigaddset(&defaults, signal);
    const int flags = O_WRONLY | O_CREAT | O_APPEND;
    for (int error : {
             posix_spawn_file_actions_adddup2(&actions, stdin_fd, STDIN_FILENO),
             posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), flags, 0644),
             posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO),
             // Sockets and files of the launcher are none of a child's business.
             posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1),
             posix_spawnattr_setsigmask(&attributes, &mask),
             posix_spawnattr_setsigdefault(&attributes, &defaults),
             posix_spawnattr_setpgroup(&attributes, 0),
             posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                       POSIX_SPAWN_SETPGROUP),
         }) {
      if (error != 0) return error;
    }
    return 0;
  }

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

}  // namespace

Signals::Signals() {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&wanted, signal);
  pthread_sigmask(SIG_BLOCK, &wanted, &previous_);
  // A shell script starts background jobs with SIGINT ignored, and what is ignored
  // never comes; whoever sends it to a launcher means it.
  for (int signal : {SIGINT, SIGTERM, SIGCHLD}) std::signal(signal, SIG_DFL);
  fd_ = signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC);
}

Signals::~Signals() {
  Take();
  close(fd_);
  pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
}

int Signals::Take() {
  int stop = 0;
  signalfd_siginfo info;
  while (read(fd_, &info, sizeof(info)) == sizeof(info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal != SIGCHLD && stop == 0) stop = signal;
  }
  return stop;
}

int Signals::Wait(absl::Duration timeout) {
  pollfd wanted{.fd = fd_, .events = POLLIN, .revents = 0};
  // Rounded up, so that a wait for a rest of a millisecond does not spin.
  const int64_t milliseconds =
      absl::ToInt64Milliseconds(absl::Ceil(timeout, absl::Milliseconds(1)));
  poll(&wanted, 1, static_cast<int>(std::clamp<int64_t>(milliseconds, 0, 1 << 30)));
  return Take();
}

std::string ChildExit::Describe() const {
  if (WIFSIGNALED(status)) {
    const char* signal = sigabbrev_np(WTERMSIG(status));
    return signal != nullptr ? absl::StrCat(name, " was killed by SIG", signal)
                             : absl::StrCat(name, " was killed by signal ", WTERMSIG(status));
  }
  return absl::StrCat(name, " exited with code ", WEXITSTATUS(status));
}

std::string ChildExit::Report() const {
  const std::string lines = LastLines(log, kReportLines);
  if (lines.empty()) return absl::StrCat(Describe(), "; its log ", log, " is empty");
  return absl::StrCat(Describe(), "; the last lines of ", log, ":\n", lines);
}

Children::Children(Signals* signals) : signals_(*signals) {}

Children::~Children() {
  KillAll(SIGKILL);
  for (const Child& child : children_) {
    int status = 0;
    while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
    }
  }
  for (int fd : pipe_) {
    if (fd >= 0) close(fd);
  }
}

absl::Status Children::Start(const std::string& name, const std::vector<std::string>& argv,
                             const std::string& log) {
  if (pipe_[0] < 0 && pipe2(pipe_, O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "cannot make a pipe");
  }
  std::vector<char*> arguments;
  for (const std::string& argument : argv) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  SpawnSetup setup;
  pid_t pid = -1;
  int error = setup.Prepare(pipe_[0], log, signals_.previous_mask());
  if (error == 0) {
    error = posix_spawn(&pid, arguments[0], &setup.actions, &setup.attributes, arguments.data(),
                        environ);
  }
  if (error != 0) {
    return absl::ErrnoToStatus(
        error, absl::StrCat("cannot start ", name, " (", argv[0], ", logging to ", log, ")"));
  }
  children_.push_back({.pid = pid, .name = name, .log = log});
  return absl::OkStatus();
}

std::vector<ChildExit> Children::Reap() {
  std::vector<ChildExit> ended;
  std::erase_if(children_, [&](Child& child) {
    int status = 0;
    if (waitpid(child.pid, &status, WNOHANG) == 0) return false;
    ended.push_back({.name = std::move(child.name), .log = std::move(child.log), .status = status});
    return true;
  });
  return ended;
}

void Children::KillAll(int signal) {
  for (const Child& child : children_) kill(child.pid, signal);
}

void Children::Await(absl::Duration limit) {
  const absl::Time deadline = absl::Now() + limit;
  while (true) {
    Reap();
    const absl::Duration left = deadline - absl::Now();
    if (children_.empty() || left <= absl::ZeroDuration()) return;
    if (signals_.Wait(left) != 0) return;
  }
}

void Children::Stop(absl::Duration grace) {
  KillAll(SIGTERM);
  Await(grace);
  KillAll(SIGKILL);
  // SIGKILL cannot be refused: this ends.
  while (!children_.empty()) {
    Reap();
    if (!children_.empty()) signals_.Wait(absl::Seconds(1));
  }
}

std::string LastLines(const std::string& path, size_t lines) {
  constexpr std::streamoff kWindow = 16384;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - kWindow));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> all = absl::StrSplit(text, '\n', absl::SkipWhitespace());
  const size_t first = all.size() > lines ? all.size() - lines : 0;
  std::string result;
  for (size_t i = first; i < all.size(); ++i) absl::StrAppend(&result, "    ", all[i], "\n");
  if (!result.empty()) result.pop_back();
  return result;
}

absl::StatusOr<std::string> ProgramBeside(const std::string& name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string path = self.parent_path() / name;
  if (access(path.c_str(), X_OK) == 0) return path;
  return absl::NotFoundError(
      absl::StrCat("cannot run ", path, ": ", std::strerror(errno),
                   "; build or install leeway, leeway-server and leeway-client together"));
}

}  // namespace leeway
