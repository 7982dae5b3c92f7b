// Failpoints: named moments at which a test can have this process killed, as by
// kill -9. LEEWAY_FAILPOINT=name:n kills it when it comes to that moment for the
// n-th time. Without the variable a failpoint costs one comparison.
#ifndef LEEWAY_COMMON_FAILPOINT_H_
#define LEEWAY_COMMON_FAILPOINT_H_

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

namespace leeway {

inline void Failpoint(absl::string_view name) {
  struct Chosen {
    std::string name;
    int64_t hits = 1;
    Chosen() {
      const char* variable = std::getenv("LEEWAY_FAILPOINT");
      if (variable == nullptr) return;
      name = variable;
      const size_t colon = name.rfind(':');
      if (colon == std::string::npos) return;
      if (!absl::SimpleAtoi(name.substr(colon + 1), &hits)) hits = 1;
      name.resize(colon);
    }
  };
  static const Chosen chosen;
  if (chosen.name.empty() || chosen.name != name) return;
  static std::atomic<int64_t> passed{0};
  if (++passed == chosen.hits) kill(getpid(), SIGKILL);
}

}  // namespace leeway

#endif  // LEEWAY_COMMON_FAILPOINT_H_
