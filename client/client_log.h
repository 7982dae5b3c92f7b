// ClientLog: what a hosting process writes to its log, each line with the run and with the clients
// that it hosts. Without a log nothing is written. For one thread.
#ifndef LEEWAY_CLIENT_CLIENT_LOG_H_
#define LEEWAY_CLIENT_CLIENT_LOG_H_

#include <cstdint>
#include <string>
#include <utility>

#include "common/log.h"

namespace leeway {

class ClientLog {
 public:
  // `clients` is how lines name them. The log, which may be null, outlives this.
  ClientLog(Log* log, std::string clients) : log_(log), clients_(std::move(clients)) {}

  // Lines of this level are not worth their making.
  bool LeavesOut(LogLine::Level level) const { return log_ == nullptr || log_->LeavesOut(level); }
  void set_run(std::string run) { run_ = std::move(run); }
  void Write(LogLine::Level level, std::string what, std::string text, uint64_t round = 0,
             std::string client = "") const {
    if (log_ == nullptr) return;
    LogLine line;
    line.level = level;
    line.what = std::move(what);
    line.client = client.empty() ? clients_ : std::move(client);
    line.text = std::move(text);
    line.run = run_;
    line.round = round;
    log_->Write(line);
  }

 private:
  Log* const log_;
  const std::string clients_;
  std::string run_;
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_CLIENT_LOG_H_
