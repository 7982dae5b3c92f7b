// HttpServer: httplib's routes and answers on connections that we take in ourselves, one
// request each. httplib gives every connection a thread before it has said anything; here
// it gets one when its request is complete, and until then it is one of few that wait: when
// there are too many, the one that has waited longest is closed for the next. So whoever
// opens connections and is silent delays nobody, and the descriptors that a dashboard takes
// from its process are bounded.
#ifndef LEEWAY_DASHBOARD_HTTP_SERVER_H_
#define LEEWAY_DASHBOARD_HTTP_SERVER_H_

#include <httplib.h>

#include <atomic>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/sockets.h"

namespace leeway {

// Routes are set before Start; handlers are called by several threads.
class HttpServer : private httplib::Server {
 public:
  using Server = httplib::Server;
  using Server::Get;
  using Server::HandlerResponse;
  using Server::set_default_headers;
  using Server::set_pre_routing_handler;

  // Connections that wait with an incomplete request, and those that are being served or
  // are next.
  static constexpr size_t kMostWaiting = 64;
  static constexpr int kMostServed = 64;

  ~HttpServer() override { Stop(); }
  // Listens on the host's addresses and serves, with so many threads; returns the port.
  absl::StatusOr<int> Start(const std::string& host, int port, size_t threads);
  // Answers under way are broken off between two of their pieces.
  void Stop();

 private:
  struct Waiting {
    Descriptor fd;
    std::string bytes;  // what has come of its request
    absl::Time until;   // when its time is over
  };

  void Run();
  void Accept(int listening);
  // What has come for it; false if it waits no more.
  bool Read(Waiting& connection);
  void Serve(Descriptor fd, std::string request);
  // httplib does not take in connections, so it has none to process.
  bool process_and_close_socket(socket_t) override { return false; }

  Descriptor stop_;  // an eventfd
  std::unique_ptr<httplib::ThreadPool> pool_;
  std::atomic<int> served_ = 0;
  std::thread thread_;

  // Touched by the thread in Run() only (and Start before it).
  std::vector<ListeningSocket> sockets_;
  std::list<Waiting> waiting_;  // longest first
};

}  // namespace leeway

#endif  // LEEWAY_DASHBOARD_HTTP_SERVER_H_
