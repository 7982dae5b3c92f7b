#include "server/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>  // its tcp_info is newer than that of netinet/tcp.h
#include <malloc.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/reason.h"
#include "common/status.h"
#include "server/steady_time.h"

namespace leeway {
namespace {

// What an epoll event is about: the end, a listening socket, or a connection by its number.
constexpr uint64_t kStop = 0;
constexpr uint64_t kFirstConnection = 64;
// Accepted in a row before anything else is looked at.
constexpr int kBatch = 64;
// Descriptors that are left to the rest of the process, whatever gRPC has not closed yet.
constexpr uint64_t kKept = 64;
constexpr int kPauseMilliseconds = 20;
constexpr char kNoFiles[] = "the server has no file descriptor left; raise its limit (LimitNOFILE)";
// An answer that the other side does not acknowledge for so long ends the connection: as
// gRPC does by itself for servers that have keep-alive.
constexpr unsigned kUnacknowledgedMilliseconds = 20'000;

struct TcpAddress {
  std::string host;
  int port = 0;
};

absl::StatusOr<TcpAddress> ParseTcp(absl::string_view text) {
  for (absl::string_view scheme : {"dns:///", "dns:", "ipv4:", "ipv6:"}) {
    if (absl::ConsumePrefix(&text, scheme)) break;
  }
  TcpAddress address;
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos || colon == 0 ||
      !absl::SimpleAtoi(text.substr(colon + 1), &address.port) || address.port < 0 ||
      address.port > 65535) {
    return absl::UnavailableError(absl::StrCat(text, " is not HOST:PORT"));
  }
  absl::string_view host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  address.host = std::string(host);
  return address;
}

absl::StatusOr<std::vector<ListeningSocket>> ListenAt(const std::string& text) {
  absl::string_view path = text;
  const bool abstract = absl::ConsumePrefix(&path, "unix-abstract:");
  if (abstract || absl::ConsumePrefix(&path, "unix:")) {
    if (absl::StartsWith(path, "//")) path.remove_prefix(2);
    std::vector<ListeningSocket> sockets;
    LEEWAY_ASSIGN_OR_RETURN(ListeningSocket socket,
                            ListenUnix(absl::StrCat(abstract ? std::string(1, '\0') : "", path)));
    sockets.push_back(std::move(socket));
    return sockets;
  }
  LEEWAY_ASSIGN_OR_RETURN(const TcpAddress address, ParseTcp(text));
  if (address.host != "0.0.0.0" && address.host != "::") {
    return ListenTcp(address.host, address.port);
  }
  absl::StatusOr<std::vector<ListeningSocket>> both = ListenTcp("::", address.port);
  return both.ok() ? std::move(both) : ListenTcp("0.0.0.0", address.port);  // without IPv6
}

// The path of the file that a unix socket leaves; empty: none.
std::string SocketFile(absl::string_view address) {
  if (!absl::ConsumePrefix(&address, "unix:")) return "";
  if (absl::StartsWith(address, "//")) address.remove_prefix(2);
  return std::string(address);
}

struct Origin {
  std::string peer;     // as gRPC names it
  std::string address;  // whose connections are counted together: of IPv6 the network
};

Origin OriginOf(const sockaddr_storage& from) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (from.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
    inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    return {absl::StrCat("ipv4:", text.data(), ":", ntohs(v4.sin_port)), text.data()};
  }
  if (from.ss_family != AF_INET6) return {};
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text.data(), text.size());
    return {absl::StrCat("ipv4:", text.data(), ":", ntohs(v6.sin6_port)), text.data()};
  }
  inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
  const absl::string_view network(reinterpret_cast<const char*>(v6.sin6_addr.s6_addr), 8);
  return {absl::StrCat("ipv6:%5B", text.data(), "%5D:", ntohs(v6.sin6_port)),
          absl::StrCat(absl::BytesToHexString(network), "::/64")};
}

bool Watch(int epoll, int fd, uint32_t events, uint64_t about) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = about;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

// Bytes that have come by a TCP connection, in order and acknowledged; 0 if that is not known.
uint64_t BytesReceived(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  if (size < offsetof(tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received) return 0;
  return info.tcpi_bytes_received;
}

// Memory that the process has; 0 if that cannot be read now.
uint64_t ResidentBytes(const Descriptor& statm) {
  std::array<char, 128> text{};
  if (pread(statm.get(), text.data(), text.size() - 1, 0) <= 0) return 0;
  const std::vector<absl::string_view> fields = absl::StrSplit(text.data(), ' ');
  uint64_t pages = 0;
  if (fields.size() < 2 || !absl::SimpleAtoi(fields[1], &pages)) return 0;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// Ends a connection at once, with what has come of it: after a mere shutdown gRPC would read on for
// as long as the other side sends.
void Reset(const Descriptor& fd) {
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  if (connect(fd.get(), &none, sizeof none) != 0) shutdown(fd.get(), SHUT_RDWR);
}

void SetOption(int fd, int option, unsigned value) {
  setsockopt(fd, IPPROTO_TCP, option, &value, sizeof value);
}

}  // namespace

Listener::Listener(Options options)
    : options_(std::move(options)),
      limits_(Connections::Limits::ForFiles(options_.files)),
      address_(options_.address),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      stop_watch_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      memory_(open("/proc/self/statm", O_RDONLY | O_CLOEXEC)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      spare_(open("/dev/null", O_RDONLY | O_CLOEXEC)),
      next_(kFirstConnection),
      connections_(limits_) {}

Listener::~Listener() { Stop(); }

absl::StatusOr<std::unique_ptr<Listener>> Listener::Open(Options options) {
  auto listener = std::unique_ptr<Listener>(new Listener(std::move(options)));
  if (!Watch(listener->epoll_.get(), listener->stop_.get(), EPOLLIN, kStop)) {
    return absl::UnavailableError(absl::StrCat("epoll: ", std::strerror(errno)));
  }
  LEEWAY_RETURN_IF_ERROR(listener->Listen());
  if (const int port = listener->sockets_.front().port; port > 0) {
    const std::string& asked = listener->options_.address;
    listener->address_ = absl::StrCat(asked.substr(0, asked.rfind(':')), ":", port);
  }
  return listener;
}

absl::Status Listener::Listen() {
  LEEWAY_ASSIGN_OR_RETURN(sockets_, ListenAt(address_));
  for (size_t i = 0; i < sockets_.size() && i + 1 < kFirstConnection; ++i) {
    if (!Watch(epoll_.get(), sockets_[i].fd.get(), EPOLLIN, i + 1)) {
      return absl::UnavailableError(absl::StrCat("epoll: ", std::strerror(errno)));
    }
  }
  return absl::OkStatus();
}

void Listener::Start(std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> server) {
  server_ = std::move(server);
  thread_ = std::thread([this] { Run(); });
  watch_ = std::thread([this] { WatchFloods(); });
}

void Listener::Stop() {
  for (const auto& [event, thread] : {std::pair(&stop_, &thread_), {&stop_watch_, &watch_}}) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(event->get(), &one, sizeof one);
    if (thread->joinable()) thread->join();
  }
  if (sockets_.empty()) return;
  sockets_.clear();
  if (const std::string file = SocketFile(address_); !file.empty()) unlink(file.c_str());
}

void Listener::Run() {
  std::array<epoll_event, kBatch> events;
  while (true) {
    const int count =
        epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), /*timeout=*/-1);
    bool usable = true;
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if (event.data.u64 == kStop) return;
      if (event.data.u64 < kFirstConnection) {
        usable = Accept(sockets_[event.data.u64 - 1].fd.get()) && usable;
      } else {
        OnEvent(event.data.u64, event.events);
      }
    }
    if (!usable) Reopen();
  }
}

bool Listener::Accept(int listening) {
  for (int i = 0; i < kBatch; ++i) {
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    Descriptor fd(accept4(listening, reinterpret_cast<sockaddr*>(&from), &size,
                          SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.valid()) {
      Origin origin = OriginOf(from);
      TakeIn(std::move(fd), std::move(origin.peer), origin.address);
      continue;
    }
    switch (errno) {
      case EAGAIN:
        return true;
      case EBADF:
      case EINVAL:
      case ENOTSOCK:
        return false;
      case EMFILE:
      case ENFILE:
        Shed(listening);
        return true;
      case ENOBUFS:
      case ENOMEM:
        Pause(kPauseMilliseconds);
        return true;
      default:  // this one has broken off already
        break;
    }
  }
  return true;
}

void Listener::TakeIn(Descriptor fd, std::string peer, const std::string& address) {
  SetOption(fd.get(), TCP_NODELAY, 1);
  SetOption(fd.get(), TCP_USER_TIMEOUT, kUnacknowledgedMilliseconds);
  // The lowest free number is given, so a high one says that few are left.
  if (static_cast<uint64_t>(fd.get()) + kKept >= options_.files) return Refuse(kNoFiles);
  Descriptor closed;
  {
    MutexLock lock(&mu_);
    const Id id = next_++;
    const std::optional<Id> out = connections_.Add(id, address);
    if (out == id) {
      closed = std::move(fd);
    } else if (out) {
      closed = Forget(*out);
    }
    if (fd.valid()) {
      Watch(epoll_.get(), fd.get(), EPOLLIN, id);
      if (!peer.empty()) by_peer_[peer] = id;
      open_[id] = {std::move(fd), std::move(peer)};
    }
  }
  if (closed.valid()) {
    shutdown(closed.get(), SHUT_RDWR);
    Refuse("too many connections without a call; call, or close some");
  }
}

void Listener::OnEvent(Id id, uint32_t events) {
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters handed;
  {
    MutexLock lock(&mu_);
    const auto found = open_.find(id);
    if (found == open_.end()) return;
    Connection& connection = found->second;
    // Both directions are closed, by whomever; or it ends without a word.
    char byte = 0;
    if ((events & EPOLLHUP) ||
        (connection.silent && recv(connection.fd.get(), &byte, 1, MSG_PEEK) != 1)) {
      Forget(id);
      return;
    }
    if (!connection.silent) return;
    connection.silent = false;
    handed.fd = fcntl(connection.fd.get(), F_DUPFD_CLOEXEC, 0);
    // That both directions are closed is told without being asked for; once is enough.
    epoll_event closed{};
    closed.events = EPOLLET;
    closed.data.u64 = id;
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.fd.get(), &closed);
    if (handed.fd < 0) Forget(id);
  }
  if (handed.fd < 0) return Refuse(kNoFiles);
  server_->HandleNewConnection(&handed);
}

void Listener::Shed(int listening) {
  spare_.Close();
  { const Descriptor closed(accept4(listening, nullptr, nullptr, SOCK_CLOEXEC)); }
  spare_ = Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
  Refuse(kNoFiles);
  Pause(kPauseMilliseconds);
}

Descriptor Listener::Forget(Id id) {
  const auto found = open_.find(id);
  if (found == open_.end()) return Descriptor();
  connections_.Remove(id);
  // A newer connection may have the same peer.
  const auto named = by_peer_.find(found->second.peer);
  if (named != by_peer_.end() && named->second == id) by_peer_.erase(named);
  Descriptor fd = std::move(found->second.fd);
  open_.erase(found);
  // Otherwise its events would come for as long as gRPC has a duplicate.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd.get(), nullptr);
  return fd;
}

void Listener::Reopen() {
  sockets_.clear();
  while (!Listen().ok()) {
    if (Pause(kPauseMilliseconds)) return;
  }
}

void Listener::OnBusy(const std::string& peer, bool busy) {
  MutexLock lock(&mu_);
  const auto found = by_peer_.find(peer);
  if (found != by_peer_.end()) connections_.SetBusy(found->second, busy);
}

std::shared_ptr<MessageBytes> Listener::OnCaller(const std::string& peer,
                                                 const std::string& caller) {
  MutexLock lock(&mu_);
  const auto named = by_peer_.find(peer);
  if (named == by_peer_.end()) return nullptr;
  Connection& connection = open_[named->second];
  connection.caller = caller;
  if (!connection.messages) connection.messages = std::make_shared<MessageBytes>(0);
  return connection.messages;
}

void Listener::Drop(const std::string& caller) {
  std::vector<Descriptor> closed;
  {
    MutexLock lock(&mu_);
    floods_.Alarm(SteadyNow());
    std::vector<Id> ids;
    for (const auto& [id, connection] : open_) {
      if (!caller.empty() && connection.caller == caller) ids.push_back(id);
    }
    for (const Id id : ids) closed.push_back(Forget(id));
  }
  for (const Descriptor& fd : closed) Reset(fd);
  if (!options_.on_flood) return;
  options_.on_flood(
      caller, WithReason(absl::ResourceExhaustedError(
                             "began more calls in a second than any client does, and was cut off; "
                             "if it does so again, revoke its certificate"),
                         "call_flood"));
}

std::vector<Listener::Flooder> Listener::FindFlooders(absl::Time now) {
  std::vector<Id> ids;
  for (auto& [id, connection] : open_) {
    if (connection.peer.empty()) continue;  // a unix socket: the file says who may
    const bool has_called = connection.messages != nullptr;
    connection.budget.Look(BytesReceived(connection.fd.get()),
                           has_called ? connection.messages->load() : 0, has_called, now);
    if (connection.budget.debt() > floods_.Allowed(has_called, now)) {
      ids.push_back(id);
    }
  }
  std::vector<Flooder> flooders;
  for (const Id id : ids) {
    const Connection& connection = open_[id];
    Flooder flooder = {Descriptor(), connection.peer, connection.caller};
    flooder.fd = Forget(id);
    flooders.push_back(std::move(flooder));
  }
  if (!flooders.empty()) floods_.Alarm(now);
  return flooders;
}

void Listener::WatchFloods() {
  absl::Duration pause = absl::ZeroDuration();
  while (!Wait(stop_watch_, static_cast<int>(absl::ToInt64Milliseconds(pause)))) {
    pause = CloseFlooders(SteadyNow());
  }
}

absl::Duration Listener::CloseFlooders(absl::Time now) {
  const uint64_t resident = ResidentBytes(memory_);
  std::vector<Flooder> flooders;
  bool over = false;
  absl::Duration pause;
  {
    MutexLock lock(&mu_);
    if (resident > 0) floods_.SetMemory(resident, now);
    flooders = FindFlooders(now);
    over = alarmed_ && !floods_.alarmed(now);
    alarmed_ = floods_.alarmed(now);
    pause = floods_.Pause(now);
  }
  for (const Flooder& flooder : flooders) {
    Reset(flooder.fd);
    if (!options_.on_flood) continue;
    options_.on_flood(flooder.caller,
                      WithReason(absl::ResourceExhaustedError(absl::StrCat(
                                     "the connection ", flooder.peer,
                                     " sent too much that belongs to no message, and was cut off; "
                                     "if there are more, shut out its address, or revoke the "
                                     "certificate")),
                                 "byte_flood"));
  }
  // What a flood took does not go back by itself.
  if (over) malloc_trim(0);
  return pause;
}

void Listener::Refuse(absl::string_view why) const {
  if (!options_.on_refusal) return;
  options_.on_refusal(WithReason(absl::ResourceExhaustedError(why), "connection_limit"));
}

bool Listener::Wait(const Descriptor& event, int milliseconds) {
  pollfd waiting = {event.get(), POLLIN, 0};
  return poll(&waiting, 1, milliseconds) == 1;
}

}  // namespace leeway
