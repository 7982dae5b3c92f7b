// Listener: takes in the connections of a gRPC server and hands each to it as an open
// socket, when its first byte is there. gRPC's own listener (1.51) ends for good when the
// process has no file descriptor left, and takes in whoever comes. This one bounds
// connections by Connections, closes those that flood the server (FloodWatch), keeps descriptors
// for the rest of the process, and opens its sockets again should they fail.
// Has one thread of its own. Thread-safe.
#ifndef LEEWAY_SERVER_LISTENER_H_
#define LEEWAY_SERVER_LISTENER_H_

#include <grpcpp/server_builder.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "common/sockets.h"
#include "server/byte_budget.h"
#include "server/connections.h"
#include "server/flood_watch.h"
#include "server/gate.h"

namespace leeway {

class Listener : public ConnectionWatch {
 public:
  struct Options {
    // HOST:PORT, [HOST]:PORT, unix:PATH or unix-abstract:NAME. Port 0 picks a free one;
    // 0.0.0.0 and :: are both IPv4 and IPv6, as with gRPC.
    std::string address;
    // Descriptors that the process may have.
    uint64_t files = 1024;
    // Told of connections that were closed and why, from any thread. Optional.
    std::function<void(const absl::Status&)> on_refusal;
    // The caller (as OnCaller named it) of a connection that was closed because it flooded the
    // server, and how; empty if it has made no call. From any thread. Optional.
    std::function<void(const std::string& caller, const absl::Status& why)> on_flood;
  };
  // Listens, so that connections wait. Unavailable if the address cannot be had.
  static absl::StatusOr<std::unique_ptr<Listener>> Open(Options options);
  ~Listener() override;

  // The address with the port that was chosen.
  const std::string& address() const { return address_; }
  const Connections::Limits& limits() const { return limits_; }
  uint64_t files() const { return options_.files; }

  // Takes in connections from now on, for a server that runs.
  void Start(std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> server);
  // Listens no more; connections that are open stay so. Before the server shuts down.
  void Stop();

  // ConnectionWatch
  void OnBusy(const std::string& peer, bool busy) override;
  std::shared_ptr<MessageBytes> OnCaller(const std::string& peer,
                                         const std::string& caller) override;
  void Drop(const std::string& caller) override;

 private:
  using Id = Connections::Id;
  struct Connection {
    Descriptor fd;                                // gRPC has a duplicate of it
    std::string peer;                             // as gRPC names it; empty for a unix socket
    bool silent = true;                           // has sent nothing yet: gRPC does not know it
    std::string caller = {};                      // who has made calls on it; empty: nobody
    std::shared_ptr<MessageBytes> messages = {};  // that calls have read
    ByteBudget budget = {};                       // of what else it sends
  };
  // One that is closed because it floods the server.
  struct Flooder {
    Descriptor fd;
    std::string peer;
    std::string caller;
  };

  explicit Listener(Options options);
  absl::Status Listen();
  void Run();
  // Accepts what waits at a socket; false if the socket is of no use any more.
  bool Accept(int listening);
  void TakeIn(Descriptor fd, std::string peer, const std::string& address);
  void OnEvent(Id id, uint32_t events);
  // Nothing can be accepted: makes room by one connection, which is closed.
  void Shed(int listening);
  // Looks at what connections send, until Stop. On a thread of its own: gRPC may go on reading a
  // connection on the thread that handed it over, as long as somebody floods it.
  void WatchFloods();
  // Closes connections that send too much beside messages. Returns when to look again.
  absl::Duration CloseFlooders(absl::Time now);
  std::vector<Flooder> FindFlooders(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // It is not watched any more; returns its descriptor, if there is one.
  Descriptor Forget(Id id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Reopen();
  void Refuse(absl::string_view why) const;
  // Waits so long, or until Stop; then true.
  bool Pause(int milliseconds) const { return Wait(stop_, milliseconds); }
  static bool Wait(const Descriptor& event, int milliseconds);

  // Constant after Open.
  const Options options_;
  const Connections::Limits limits_;
  std::string address_;
  Descriptor stop_;        // an eventfd
  Descriptor stop_watch_;  // one that stops the watch, after the listener
  Descriptor memory_;      // the process's own, as the kernel tells it
  Descriptor epoll_;

  // Touched by the listener's thread only (and Open before it).
  std::vector<ListeningSocket> sockets_;
  Descriptor spare_;  // given up so that one connection can be accepted, and closed
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> server_;

  bool alarmed_ = false;  // at the watch's last look; touched by it only

  std::thread thread_;
  std::thread watch_;

  Mutex mu_;
  Id next_ ABSL_GUARDED_BY(mu_);
  Connections connections_ ABSL_GUARDED_BY(mu_);
  FloodWatch floods_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<Id, Connection> open_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, Id> by_peer_ ABSL_GUARDED_BY(mu_);
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_LISTENER_H_
