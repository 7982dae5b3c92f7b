// Descriptors that close themselves, and sockets that listen.
#ifndef LEEWAY_COMMON_SOCKETS_H_
#define LEEWAY_COMMON_SOCKETS_H_

#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace leeway {

// Owns a file descriptor, or none (-1).
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { Close(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  void Close() {
    if (valid()) close(Release());
  }

 private:
  int fd_;
};

// Accepts without blocking and is closed by exec. Another process must not share its port.
struct ListeningSocket {
  Descriptor fd;
  int port = 0;  // 0: a unix socket
};

// Listens on every address that the host has, with one port for all; port 0 picks a free
// one. "::" stands for IPv4, too. Unavailable if none of the addresses can be had.
absl::StatusOr<std::vector<ListeningSocket>> ListenTcp(const std::string& host, int port);

// Takes the place of a socket file that is left there. A name that begins with a zero byte
// is one of Linux's abstract names. Whoever ends it removes the file.
absl::StatusOr<ListeningSocket> ListenUnix(const std::string& path);

}  // namespace leeway

#endif  // LEEWAY_COMMON_SOCKETS_H_
