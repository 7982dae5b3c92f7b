// A line on stderr that says how far a long import is: rewritten in place on a
// terminal, otherwise one line every few seconds. Silent when all is quick.
#ifndef LEEWAY_CLIENT_IMPORT_PROGRESS_H_
#define LEEWAY_CLIENT_IMPORT_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <string>

namespace leeway {

class Progress {
 public:
  // "<what>: 12 of <total> <unit>"; total 0 when not known.
  Progress(std::string what, std::string unit, uint64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Step(uint64_t count = 1);

 private:
  const std::string what_;
  const std::string unit_;
  const uint64_t total_;
  const bool terminal_;
  uint64_t done_ = 0;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_IMPORT_PROGRESS_H_
