#include "client/import/progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"

namespace leeway {

Progress::Progress(std::string what, std::string unit, uint64_t total)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      total_(total),
      terminal_(isatty(STDERR_FILENO) == 1),
      last_(std::chrono::steady_clock::now()) {}

Progress::~Progress() {
  if (shown_ && terminal_) std::fputs("\r\033[K", stderr);
}

void Progress::Step(uint64_t count) {
  done_ += count;
  const auto now = std::chrono::steady_clock::now();
  const auto pause = terminal_ ? std::chrono::milliseconds(200) : std::chrono::milliseconds(5000);
  if (now - last_ < pause) return;
  last_ = now;
  shown_ = true;
  const std::string line =
      absl::StrCat(what_, ": ", done_, total_ > 0 ? absl::StrCat(" of ", total_) : "", " ", unit_);
  std::fputs(terminal_ ? absl::StrCat("\r\033[K", line).c_str() : absl::StrCat(line, "\n").c_str(),
             stderr);
  std::fflush(stderr);
}

}  // namespace leeway
