// WorkerProgram: the process of a worker, and the socket to it. One that this process
// started is killed and reaped with this object, together with whatever it has started;
// one that started this process is only hung up on. Not thread-safe.
#ifndef LEEWAY_CLIENT_WORKER_PROGRAM_H_
#define LEEWAY_CLIENT_WORKER_PROGRAM_H_

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "client/line_socket.h"

namespace leeway {

class WorkerProgram {
 public:
  // Runs `command` by /bin/sh in a process group of its own; its end of the socket is the
  // descriptor that the environment variable LEEWAY_WORKER_FD names.
  static absl::StatusOr<WorkerProgram> Start(const std::string& command);
  // A worker at the other end of an inherited descriptor.
  static absl::StatusOr<WorkerProgram> Inherit(int fd);

  WorkerProgram() = default;
  WorkerProgram(WorkerProgram&& other) noexcept;
  WorkerProgram& operator=(WorkerProgram&& other) noexcept;
  ~WorkerProgram() { Stop(); }

  bool running() const { return socket_.open(); }
  LineSocket& socket() { return socket_; }
  // Ends it. Returns how it had ended, if it had, such as "exited with code 1", or "was
  // stopped".
  std::string Stop();
  // Kills the workers of this process, from whatever thread: it is about to exit.
  static void KillAll();

 private:
  pid_t pid_ = -1;  // -1: it was not started here
  LineSocket socket_;
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_WORKER_PROGRAM_H_
