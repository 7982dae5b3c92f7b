// Dashboard: a run as a web page, read-only, over HTTP. Pages, scripts and styles are
// part of the program; nothing is fetched from elsewhere. Has threads of its own.
#ifndef LEEWAY_DASHBOARD_HTTP_H_
#define LEEWAY_DASHBOARD_HTTP_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "dashboard/feed.h"

namespace leeway {

class Dashboard {
 public:
  struct Options {
    std::string listen;  // HOST:PORT or PORT (then loopback); port 0 picks a free one
    Feed::Options feed;
    // The text of /metrics; null: there is none.
    std::function<std::string()> metrics;
  };
  // Listens and serves. Unavailable if the port cannot be had.
  static absl::StatusOr<std::unique_ptr<Dashboard>> Start(Options options);
  virtual ~Dashboard() = default;

  // "http://127.0.0.1:8760/"
  virtual const std::string& url() const = 0;
  virtual Feed& feed() = 0;
  // The run is over: open pages are told so and get what is left, for at most a few
  // seconds; then nothing is served.
  virtual void Stop() = 0;
};

}  // namespace leeway

#endif  // LEEWAY_DASHBOARD_HTTP_H_
