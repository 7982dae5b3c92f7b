// Log: one line for each thing that happened, as text or JSON, to a file descriptor. Write never
// blocks: a thread of its own writes, and where nobody reads (a full pipe) lines are dropped and
// counted. The same thing of the same cause passes some times and then once a minute, with the
// number of those left out.
// Thread-safe.
#ifndef LEEWAY_COMMON_LOG_H_
#define LEEWAY_COMMON_LOG_H_

#include <cstdint>
#include <deque>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/mutex.h"
#include "common/rate_limit.h"

namespace leeway {

struct LogLine {
  enum class Level { kDebug, kInfo, kWarning, kError };
  Level level = Level::kInfo;
  std::string what;    // "joined", "refused", ...: one word, or few
  std::string client;  // or process, if it is about one
  std::string text;    // in a sentence, with the remedy if there is one
  std::string run = {};
  uint64_t round = 0;      // 0: none
  std::string cause = {};  // what lines are counted by, besides `what`; empty: the client
};

enum class LogFormat { kText, kJson };

// "debug", "info", "warning" or "error", and back; another word is kInfo.
const char* LevelName(LogLine::Level level);
LogLine::Level ParseLevel(absl::string_view name);

// The line as written, with its end. Nothing in it can end the line early.
std::string FormatLine(const LogLine& line, absl::Time time, LogFormat format);

class Log {
 public:
  // The descriptor stays the caller's and outlives the log. Lines below `least` are left out.
  Log(int fd, LogFormat format, LogLine::Level least = LogLine::Level::kInfo);
  // Writes what waits, as far as somebody reads it.
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  // Are lines of this level left out?
  bool LeavesOut(LogLine::Level level) const { return level < least_; }
  void Write(const LogLine& line) ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t dropped() const ABSL_LOCKS_EXCLUDED(mu_);
  // All lines so far have been written or dropped, or `limit` has passed.
  void Flush(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  static constexpr size_t kMostWaiting = 2000;  // lines

  void Enqueue(std::string line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run();
  // False if nobody has read for a moment.
  bool WriteSome(absl::string_view& rest) const;

  const int fd_;
  const LogFormat format_;
  const LogLine::Level least_;
  mutable Mutex mu_;
  CondVar changed_ ABSL_GUARDED_BY(mu_);
  std::deque<std::string> waiting_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t dropped_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t told_ ABSL_GUARDED_BY(mu_) = 0;  // of the dropped, those that the log has told of
  RateLimit limit_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace leeway

#endif  // LEEWAY_COMMON_LOG_H_
