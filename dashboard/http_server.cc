#include "dashboard/http_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/time/clock.h"
#include "common/status.h"

namespace leeway {
namespace {

// What one request may have: its line and headers, and the time to send them or to
// take the next piece of the answer.
constexpr size_t kMostRequestBytes = 32 << 10;
constexpr absl::Duration kPatience = absl::Seconds(5);
constexpr char kEndOfHeaders[] = "\r\n\r\n";
// With no descriptor left, connections wait so long to be accepted.
constexpr int kPauseMilliseconds = 20;

constexpr char kBusy[] =
    "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    "Content-Length: 0\r\n\r\n";

// One connection's bytes: the request that has come, and the answer. Whoever does not take
// the answer is left.
class RequestStream : public httplib::Stream {
 public:
  RequestStream(socket_t socket, std::string request)
      : socket_(socket), request_(std::move(request)) {}

  bool is_readable() const override { return begin_ < request_.size(); }
  bool is_writable() const override {
    pollfd waited = {socket_, POLLOUT | POLLRDHUP, 0};
    const int milliseconds = static_cast<int>(absl::ToInt64Milliseconds(kPatience));
    return poll(&waited, 1, milliseconds) == 1 && waited.revents == POLLOUT;
  }
  // Nothing is read after the headers: there is nothing to send us.
  ssize_t read(char* out, size_t size) override {
    const size_t n = std::min(size, request_.size() - begin_);
    if (n == 0) return -1;
    std::copy_n(request_.data() + begin_, n, out);
    begin_ += n;
    return static_cast<ssize_t>(n);
  }
  ssize_t write(const char* bytes, size_t size) override {
    return is_writable() ? send(socket_, bytes, size, MSG_NOSIGNAL) : -1;
  }
  // Nobody asks who calls.
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return socket_; }

 private:
  const socket_t socket_;
  const std::string request_;
  size_t begin_ = 0;
};

}  // namespace

absl::StatusOr<int> HttpServer::Start(const std::string& host, int port, size_t threads) {
  LEEWAY_ASSIGN_OR_RETURN(sockets_, ListenTcp(host, port));
  stop_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  svr_sock_ = sockets_.front().fd.get();  // httplib writes on while there is one
  pool_ = std::make_unique<httplib::ThreadPool>(threads);
  thread_ = std::thread([this] { Run(); });
  return sockets_.front().port;
}

void HttpServer::Stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(stop_.get(), &one, sizeof one);
  thread_.join();
  svr_sock_ = INVALID_SOCKET;
  pool_->shutdown();
  waiting_.clear();
  sockets_.clear();
}

void HttpServer::Run() {
  while (true) {
    std::vector<pollfd> polled = {{stop_.get(), POLLIN, 0}};
    for (const ListeningSocket& socket : sockets_) polled.push_back({socket.fd.get(), POLLIN, 0});
    for (const Waiting& one : waiting_) polled.push_back({one.fd.get(), POLLIN, 0});
    int timeout = -1;
    if (!waiting_.empty()) {
      const absl::Duration left = waiting_.front().until - absl::Now();
      timeout = static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(left) + 1, 0,
                                                     absl::ToInt64Milliseconds(kPatience)));
    }
    poll(polled.data(), polled.size(), timeout);
    if (polled.front().revents != 0) return;
    const absl::Time now = absl::Now();
    auto event = polled.begin() + 1 + static_cast<std::ptrdiff_t>(sockets_.size());
    for (auto one = waiting_.begin(); one != waiting_.end(); ++event) {
      const bool stays = event->revents != 0 ? Read(*one) : now < one->until;
      one = stays ? std::next(one) : waiting_.erase(one);
    }
    for (size_t i = 0; i < sockets_.size(); ++i) {
      if (polled[1 + i].revents != 0) Accept(sockets_[i].fd.get());
    }
  }
}

void HttpServer::Accept(int listening) {
  for (size_t i = 0; i < kMostWaiting; ++i) {
    Descriptor fd(accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) {
      pollfd stop = {stop_.get(), POLLIN, 0};
      if (errno != EAGAIN && errno != EINTR) poll(&stop, 1, kPauseMilliseconds);
      return;
    }
    waiting_.push_back({std::move(fd), "", absl::Now() + kPatience});
    // Most requests have come with their connection.
    if (!Read(waiting_.back())) waiting_.pop_back();
    if (waiting_.size() > kMostWaiting) waiting_.pop_front();
  }
}

bool HttpServer::Read(Waiting& connection) {
  std::array<char, 4096> buffer;
  const ssize_t got = recv(connection.fd.get(), buffer.data(), buffer.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) return false;
  connection.bytes.append(buffer.data(), static_cast<size_t>(got));
  if (connection.bytes.find(kEndOfHeaders) == std::string::npos) {
    return connection.bytes.size() < kMostRequestBytes;
  }
  if (served_ >= kMostServed) {
    send(connection.fd.get(), kBusy, sizeof kBusy - 1, MSG_NOSIGNAL);
    return false;
  }
  ++served_;
  pool_->enqueue([this, fd = connection.fd.Release(), bytes = std::move(connection.bytes)] {
    Serve(Descriptor(fd), bytes);
    --served_;
  });
  return false;
}

void HttpServer::Serve(Descriptor fd, std::string request) {
  RequestStream stream(fd.get(), std::move(request));
  bool closed = false;
  process_request(stream, /*close_connection=*/true, closed, nullptr);
  shutdown(fd.get(), SHUT_RDWR);
}

}  // namespace leeway
