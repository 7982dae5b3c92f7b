#include "common/log.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/utf8.h"

namespace leeway {
namespace {

// A write of at most this many bytes to a pipe that poll calls writable does not block. All of a
// line fits, so that lines of several processes do not mix.
constexpr size_t kMostBytes = 4096;
constexpr size_t kMostText = 2000;
constexpr size_t kMostName = 200;

constexpr uint64_t kFirst = 20;  // of one cause
constexpr absl::Duration kPeriod = absl::Minutes(1);

}  // namespace

const char* LevelName(LogLine::Level level) {
  switch (level) {
    case LogLine::Level::kDebug:
      return "debug";
    case LogLine::Level::kInfo:
      return "info";
    case LogLine::Level::kWarning:
      return "warning";
    case LogLine::Level::kError:
      return "error";
  }
  return "error";
}

LogLine::Level ParseLevel(absl::string_view name) {
  for (const auto level :
       {LogLine::Level::kDebug, LogLine::Level::kWarning, LogLine::Level::kError}) {
    if (name == LevelName(level)) return level;
  }
  return LogLine::Level::kInfo;
}

std::string FormatLine(const LogLine& line, absl::Time time, LogFormat format) {
  const std::string stamp = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
  const std::string client = OneLine(line.client, kMostName);
  const std::string text = OneLine(line.text, kMostText);
  if (format == LogFormat::kJson) {
    nlohmann::ordered_json json = {
        {"time", stamp}, {"level", LevelName(line.level)}, {"what", line.what}};
    if (!line.run.empty()) json["run"] = line.run;
    if (line.round > 0) json["round"] = line.round;
    if (!client.empty()) json["client"] = client;
    json["text"] = text;
    return absl::StrCat(json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
                        "\n");
  }
  std::string where;
  if (!line.run.empty()) absl::StrAppend(&where, " run ", line.run);
  if (line.round > 0) absl::StrAppend(&where, " round ", line.round);
  return absl::StrCat(stamp, " ", LevelName(line.level), where, " ", line.what,
                      client.empty() ? "" : " ", client, ": ", text, "\n");
}

Log::Log(int fd, LogFormat format, LogLine::Level least)
    : fd_(fd), format_(format), least_(least), limit_(kFirst, kPeriod), thread_([this] {
        Run();
      }) {}

Log::~Log() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void Log::Write(const LogLine& line) {
  if (LeavesOut(line.level)) return;
  const absl::Time now = absl::Now();
  const std::string cause =
      absl::StrCat(line.what, "\n", line.cause.empty() ? line.client : line.cause);
  MutexLock lock(&mu_);
  const std::optional<uint64_t> held = limit_.Pass(cause, now);
  if (!held) return;
  if (*held == 0) return Enqueue(FormatLine(line, now, format_));
  LogLine with_count = line;
  absl::StrAppend(&with_count.text, " (and ", *held, " more like this before it)");
  Enqueue(FormatLine(with_count, now, format_));
}

void Log::Enqueue(std::string line) {
  if (waiting_.size() >= kMostWaiting) {
    ++dropped_;
    return;
  }
  if (dropped_ > told_) {
    LogLine gap;
    gap.level = LogLine::Level::kWarning;
    gap.what = "dropped";
    gap.text = absl::StrCat(dropped_ - told_, " lines, because nobody read the log");
    waiting_.push_back(FormatLine(gap, absl::Now(), format_));
    told_ = dropped_;
  }
  waiting_.push_back(std::move(line));
  changed_.SignalAll();
}

uint64_t Log::dropped() const {
  MutexLock lock(&mu_);
  return dropped_;
}

void Log::Flush(absl::Duration limit) {
  const absl::Time until = absl::Now() + limit;
  MutexLock lock(&mu_);
  while ((writing_ || !waiting_.empty()) && absl::Now() < until) {
    changed_.WaitWithDeadline(&mu_, until);
  }
}

void Log::Run() {
  while (true) {
    std::string line;
    {
      MutexLock lock(&mu_);
      writing_ = false;
      changed_.SignalAll();
      while (waiting_.empty() && !stopping_) changed_.Wait(&mu_);
      if (waiting_.empty()) return;
      line = std::move(waiting_.front());
      waiting_.pop_front();
      writing_ = true;
    }
    absl::string_view rest = line;
    while (!rest.empty()) {
      if (WriteSome(rest)) continue;
      MutexLock lock(&mu_);
      if (!stopping_) continue;
      dropped_ += waiting_.size() + 1;  // nobody waits for a reader at the end
      waiting_.clear();
      return;
    }
  }
}

bool Log::WriteSome(absl::string_view& rest) const {
  pollfd poller = {fd_, POLLOUT, 0};
  if (poll(&poller, 1, /*milliseconds=*/100) <= 0) return false;
  const ssize_t written = write(fd_, rest.data(), std::min(rest.size(), kMostBytes));
  if (written < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  // Closed, or a full disk: the line is lost, and the program goes on.
  rest.remove_prefix(written < 0 ? rest.size() : static_cast<size_t>(written));
  return true;
}

}  // namespace leeway
