#include "client/worker_program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

extern char** environ;

namespace leeway {
namespace {

constexpr int kWorkerFd = 3;  // in the worker
constexpr char kVariable[] = "LEEWAY_WORKER_FD";
// A process that has closed its socket is about to end: its own exit code says more than
// that it was killed.
constexpr absl::Duration kGrace = absl::Seconds(2);

std::atomic<pid_t> running_group{-1};  // one worker at a time

// The environment, with the descriptor's number.
std::vector<std::string> WorkerEnvironment() {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!absl::StartsWith(*entry, absl::StrCat(kVariable, "="))) variables.emplace_back(*entry);
  }
  variables.push_back(absl::StrCat(kVariable, "=", kWorkerFd));
  return variables;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& s : strings) pointers.push_back(s.data());
  pointers.push_back(nullptr);
  return pointers;
}

// posix_spawn, because threads of gRPC may run: nothing happens between fork and exec.
int Spawn(const std::string& command, int fd, pid_t& pid) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fd, kWorkerFd);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  const absl::Cleanup release = [&] {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  };
  sigset_t none;  // this process blocks signals that the worker shall get
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  sigset_t ignored;  // by this process
  sigemptyset(&ignored);
  sigaddset(&ignored, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &ignored);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> arguments = {"/bin/sh", "-c", command};
  std::vector<std::string> variables = WorkerEnvironment();
  return posix_spawn(&pid, "/bin/sh", &actions, &attributes, Pointers(arguments).data(),
                     Pointers(variables).data());
}

std::string Describe(int status) {
  if (WIFSIGNALED(status)) {
    return absl::StrCat("was killed by signal ", WTERMSIG(status), " (",
                        strsignal(WTERMSIG(status)), ")");
  }
  return absl::StrCat("exited with code ", WEXITSTATUS(status));
}

// Waits for the process to end by itself. False if it does not in time.
bool Reap(pid_t pid, absl::Duration grace, int& status) {
  const auto fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd >= 0) {
    pollfd poller = {fd, POLLIN, 0};  // readable when it has ended
    poll(&poller, 1, static_cast<int>(absl::ToInt64Milliseconds(grace)));
    close(fd);
  }
  return waitpid(pid, &status, WNOHANG) == pid;
}

}  // namespace

absl::StatusOr<WorkerProgram> WorkerProgram::Start(const std::string& command) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot make a socket for the worker: ", std::strerror(errno)));
  }
  WorkerProgram program;
  program.socket_ = LineSocket(ends[0]);
  const int error = Spawn(command, ends[1], program.pid_);
  close(ends[1]);
  if (error != 0) {
    program.pid_ = -1;
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start the worker `", command, "`: ", std::strerror(error)));
  }
  running_group = program.pid_;
  return program;
}

absl::StatusOr<WorkerProgram> WorkerProgram::Inherit(int fd) {
  int type = 0;
  socklen_t size = sizeof type;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--worker-fd ", fd, " is not a stream socket that this process has inherited"));
  }
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  WorkerProgram program;
  program.socket_ = LineSocket(fd);
  return program;
}

WorkerProgram::WorkerProgram(WorkerProgram&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), socket_(std::move(other.socket_)) {}

WorkerProgram& WorkerProgram::operator=(WorkerProgram&& other) noexcept {
  Stop();
  pid_ = std::exchange(other.pid_, -1);
  socket_ = std::move(other.socket_);
  return *this;
}

std::string WorkerProgram::Stop() {
  // Has the other end been closed?
  const bool hung_up = socket_.open() && socket_.HungUp();
  socket_.Close();
  if (pid_ < 0) return hung_up ? "has closed its socket" : "was hung up on";
  int status = 0;
  const bool ended = Reap(pid_, hung_up ? kGrace : absl::ZeroDuration(), status);
  kill(-pid_, SIGKILL);  // it, or what it has left behind
  if (!ended) waitpid(pid_, &status, 0);
  running_group = -1;
  pid_ = -1;
  return ended ? Describe(status) : "was stopped";
}

void WorkerProgram::KillAll() {
  if (const pid_t group = running_group; group > 0) kill(-group, SIGKILL);
}

}  // namespace leeway
