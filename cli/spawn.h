// Child processes of the launcher: started without a shell, logged to files,
// always stopped and reaped, also when the launcher itself is killed.
#ifndef LEEWAY_CLI_SPAWN_H_
#define LEEWAY_CLI_SPAWN_H_

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace leeway {

// SIGINT, SIGTERM and SIGCHLD as a file descriptor to poll, instead of handlers.
// Make it before the first thread is started: it blocks these signals in the
// calling thread and all that are started later.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // Readable when a signal has come.
  int fd() const { return fd_; }
  // Takes what has come. Returns SIGINT or SIGTERM if it was among it, else 0.
  int Take();
  // Waits until a signal comes (then takes it, as above) or `timeout` is over.
  int Wait(absl::Duration timeout);
  // The mask before, which children get.
  const sigset_t& previous_mask() const { return previous_; }

 private:
  sigset_t previous_;
  int fd_;
};

// How a child ended.
struct ChildExit {
  std::string name;
  std::string log;
  int status = 0;  // as waitpid gives it

  bool ok() const { return status == 0; }
  // "client_03 exited with code 1", "server was killed by SIGKILL".
  std::string Describe() const;
  // The same, with the last lines of its log.
  std::string Report() const;
};

// The children that run. Each has the read end of one pipe as its stdin, whose
// other end only this process holds: EOF tells a child that the launcher is gone.
// Each is in a process group of its own, so that Ctrl-C reaches the launcher
// alone and the launcher stops them in order. Not thread-safe.
class Children {
 public:
  explicit Children(Signals* signals);
  // Kills what still runs, without grace.
  ~Children();
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  // Starts argv[0] (a path); stdout and stderr are appended to `log`.
  absl::Status Start(const std::string& name, const std::vector<std::string>& argv,
                     const std::string& log);
  // Children that have ended since the last call. Does not wait.
  std::vector<ChildExit> Reap();
  size_t running() const { return children_.size(); }
  // Waits until all have ended, at most for `limit` or until SIGINT or SIGTERM.
  void Await(absl::Duration limit);
  // SIGTERM to all, SIGKILL to those that are still there after `grace` or at a
  // second SIGINT. Nothing runs afterwards.
  void Stop(absl::Duration grace);

 private:
  struct Child {
    pid_t pid;
    std::string name;
    std::string log;
  };
  void KillAll(int signal);

  Signals& signals_;
  int pipe_[2] = {-1, -1};
  std::vector<Child> children_;
};

// The last lines of a text file, each indented; empty if there are none.
std::string LastLines(const std::string& path, size_t lines);

// Path of a program that lies beside the running one.
absl::StatusOr<std::string> ProgramBeside(const std::string& name);

}  // namespace leeway

#endif  // LEEWAY_CLI_SPAWN_H_
