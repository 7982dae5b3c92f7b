#include "client/line_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status.h"

namespace leeway {
namespace {

constexpr size_t kPiece = size_t{64} << 10;

int PollTimeout(absl::Time deadline) {
  if (deadline == absl::InfiniteFuture()) return -1;
  const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now()) + 1;
  return static_cast<int>(std::clamp<int64_t>(left, 0, std::numeric_limits<int>::max()));
}

bool Retry(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

LineSocket::LineSocket(LineSocket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), received_(std::move(other.received_)) {}

LineSocket& LineSocket::operator=(LineSocket&& other) noexcept {
  Close();
  fd_ = std::exchange(other.fd_, -1);
  received_ = std::move(other.received_);
  return *this;
}

void LineSocket::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  received_.clear();
}

bool LineSocket::HungUp() const {
  char byte = 0;
  const ssize_t n = recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && !Retry(errno));
}

absl::Status LineSocket::Await(short events, absl::Time deadline) const {
  pollfd poller = {fd_, events, 0};
  const int ready = poll(&poller, 1, PollTimeout(deadline));
  if (ready < 0 && errno != EINTR) return absl::UnavailableError(std::strerror(errno));
  if (ready == 0 && absl::Now() >= deadline) return absl::DeadlineExceededError("no answer");
  return absl::OkStatus();
}

absl::Status LineSocket::Send(absl::string_view line, absl::Time deadline) {
  std::string message = absl::StrCat(line, "\n");
  absl::string_view rest = message;
  while (!rest.empty()) {
    const ssize_t n = send(fd_, rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      rest.remove_prefix(static_cast<size_t>(n));
    } else if (Retry(errno)) {
      LEEWAY_RETURN_IF_ERROR(Await(POLLOUT, deadline));
    } else {
      return absl::UnavailableError(std::strerror(errno));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> LineSocket::Receive(absl::Time deadline) {
  size_t searched = 0;
  while (true) {
    const size_t end = received_.find('\n', searched);
    if (end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    searched = received_.size();
    if (searched > kMostBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("a line has more than ", kMostBytes, " bytes"));
    }
    LEEWAY_RETURN_IF_ERROR(Await(POLLIN, deadline));
    received_.resize(searched + kPiece);
    const ssize_t n = recv(fd_, received_.data() + searched, kPiece, MSG_DONTWAIT);
    received_.resize(searched + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n == 0) return absl::UnavailableError("the stream has ended");
    if (n < 0 && !Retry(errno)) return absl::UnavailableError(std::strerror(errno));
  }
}

}  // namespace leeway
