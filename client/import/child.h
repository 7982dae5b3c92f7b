// Work that writes a directory, done in a child process: whatever ends it (Ctrl-C, a
// limit, a crash on a hostile file), the parent is there to say so and to remove what
// is half done.
#ifndef LEEWAY_CLIENT_IMPORT_CHILD_H_
#define LEEWAY_CLIENT_IMPORT_CHILD_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>

namespace leeway {

// What the child may use. Files that nobody vouches for are imported under these.
struct ChildLimits {
  bool restricted = false;  // none of the below, unless it is set
  double memory_gib = 4;    // address space
  double cpu_minutes = 10;  // time of computing
};

// Runs `work` in a child and returns its exit code. If it did not come to its end,
// says why on stderr, calls `cleanup` with the child's process id and returns 128 plus
// the signal that stopped it (130 for Ctrl-C) or 1. A signal to the parent ends the
// child first. Call it while the process has one thread.
int RunInChild(const ChildLimits& limits, const std::function<int()>& work,
               const std::function<void(pid_t)>& cleanup);

}  // namespace leeway

#endif  // LEEWAY_CLIENT_IMPORT_CHILD_H_
