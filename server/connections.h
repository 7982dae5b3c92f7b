// Connections: those that are open at the server, by the address they come from, and which
// of them gives way when there are too many. One without a call under way has proved nothing
// yet (its certificate is seen with its first call) or has nothing to do: of these there are
// few, in all and for each address, and the one that has been so for longest gives way to
// the next. One with a call is never closed for another's sake.
// Pure: no sockets, no clock. Not thread-safe.
#ifndef LEEWAY_SERVER_CONNECTIONS_H_
#define LEEWAY_SERVER_CONNECTIONS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace leeway {

class Connections {
 public:
  using Id = uint64_t;
  struct Limits {
    size_t all = 0;
    size_t idle = 0;              // without a call
    size_t idle_per_address = 0;  // of them, from one address
    // What a process with so many file descriptors can have. A connection takes two: gRPC's
    // and one by which the listener knows when gRPC has closed it.
    static Limits ForFiles(uint64_t files);
  };

  explicit Connections(Limits limits) : limits_(limits) {}

  // A connection comes from `address`; empty if it is from a unix socket, of which we cannot
  // know when it has calls: it counts among all only. Returns the one to close for it, which
  // is no longer counted; this may be the new one.
  std::optional<Id> Add(Id id, const std::string& address);
  void Remove(Id id);
  // It has calls, or has none any more. No effect for one that is not known.
  void SetBusy(Id id, bool busy);

  size_t size() const { return all_.size(); }
  size_t idle() const { return idle_; }

 private:
  struct Connection {
    std::string address;
    bool busy = false;
    std::list<Id>::iterator place;  // in idle_by_address_, while it is not busy
  };

  void Enqueue(Id id, Connection& connection);
  void Dequeue(const Connection& connection);
  // The longest idle of the address that has most of them.
  Id Expendable() const;

  const Limits limits_;
  absl::flat_hash_map<Id, Connection> all_;
  absl::flat_hash_map<std::string, std::list<Id>> idle_by_address_;  // longest idle first
  size_t idle_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_SERVER_CONNECTIONS_H_
