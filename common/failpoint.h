// Failpoints: named moments at which a test can have this process killed, as by
// kill -9, or stopped. LEEWAY_FAILPOINT=name:n kills it when it comes to that moment
// for the n-th time, name:n:stop stops it there until SIGCONT. Without the variable
// a failpoint costs one comparison.
#ifndef LEEWAY_COMMON_FAILPOINT_H_
#define LEEWAY_COMMON_FAILPOINT_H_

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace leeway {

inline void Failpoint(absl::string_view name) {
  struct Chosen {
    std::string name;
    int64_t hits = 1;
    int signal = SIGKILL;
    Chosen() {
      const char* variable = std::getenv("LEEWAY_FAILPOINT");
      if (variable == nullptr) return;
      const std::vector<std::string> parts = absl::StrSplit(variable, ':');
      name = parts[0];
      if (parts.size() > 1 && !absl::SimpleAtoi(parts[1], &hits)) hits = 1;
      if (parts.size() > 2 && parts[2] == "stop") signal = SIGSTOP;
    }
  };
  static const Chosen chosen;
  if (chosen.name.empty() || chosen.name != name) return;
  static std::atomic<int64_t> passed{0};
  if (++passed == chosen.hits) kill(getpid(), chosen.signal);
}

}  // namespace leeway

#endif  // LEEWAY_COMMON_FAILPOINT_H_
