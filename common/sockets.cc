#include "common/sockets.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

namespace leeway {
namespace {

constexpr int kFlags = SOCK_NONBLOCK | SOCK_CLOEXEC;

absl::Status Failed(absl::string_view where) {
  return absl::UnavailableError(absl::StrCat(where, ": ", std::strerror(errno)));
}

int PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

absl::StatusOr<ListeningSocket> Bind(const std::string& host, const addrinfo& info, int port) {
  Descriptor fd(socket(info.ai_family, SOCK_STREAM | kFlags, 0));
  if (!fd.valid()) return Failed(host);
  const int yes = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_storage address{};
  std::memcpy(&address, info.ai_addr, info.ai_addrlen);
  if (info.ai_family == AF_INET6) {
    const int no = 0;
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(static_cast<uint16_t>(port));
  } else {
    reinterpret_cast<sockaddr_in&>(address).sin_port = htons(static_cast<uint16_t>(port));
  }
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), info.ai_addrlen) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    return Failed(absl::StrCat(host, " port ", port));
  }
  const int bound = PortOf(fd.get());
  return ListeningSocket{std::move(fd), bound};
}

}  // namespace

absl::StatusOr<std::vector<ListeningSocket>> ListenTcp(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) return absl::UnavailableError(absl::StrCat(host, ": ", gai_strerror(error)));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
  std::vector<ListeningSocket> sockets;
  absl::Status failed = absl::UnavailableError(absl::StrCat(host, " has no address"));
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    absl::StatusOr<ListeningSocket> socket =
        Bind(host, *info, sockets.empty() ? port : sockets.front().port);
    if (socket.ok()) {
      sockets.push_back(*std::move(socket));
    } else {
      failed = socket.status();
    }
  }
  if (sockets.empty()) return failed;
  return sockets;
}

absl::StatusOr<ListeningSocket> ListenUnix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const bool abstract = !path.empty() && path.front() == '\0';
  const size_t size = path.size() + (abstract ? 0 : 1);
  if (path.empty() || size > sizeof address.sun_path) {
    return absl::UnavailableError(absl::StrCat("a socket's path must have 1 to ",
                                               sizeof address.sun_path - 1, " bytes, not ",
                                               path.size()));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  struct stat info {};
  if (!abstract && stat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode)) unlink(path.c_str());
  Descriptor fd(socket(AF_UNIX, SOCK_STREAM | kFlags, 0));
  if (!fd.valid() ||
      bind(fd.get(), reinterpret_cast<sockaddr*>(&address),
           static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + size)) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    return Failed(path);
  }
  return ListeningSocket{std::move(fd), 0};
}

}  // namespace leeway
