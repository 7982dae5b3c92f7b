// LineSocket: messages of one line each over a connected stream socket, which it owns.
// Not thread-safe.
#ifndef LEEWAY_CLIENT_LINE_SOCKET_H_
#define LEEWAY_CLIENT_LINE_SOCKET_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace leeway {

class LineSocket {
 public:
  static constexpr size_t kMostBytes = size_t{16} << 20;  // of a line

  LineSocket() = default;
  explicit LineSocket(int fd) : fd_(fd) {}
  LineSocket(LineSocket&& other) noexcept;
  LineSocket& operator=(LineSocket&& other) noexcept;
  ~LineSocket() { Close(); }

  bool open() const { return fd_ >= 0; }
  void Close();
  // Has the other side closed, and sent nothing more that was not received?
  bool HungUp() const;

  // Unavailable: the other side has closed. DeadlineExceeded: it does not read.
  absl::Status Send(absl::string_view line, absl::Time deadline);
  // The next line, without its end. Unavailable and DeadlineExceeded as above;
  // InvalidArgument: the line is too long.
  absl::StatusOr<std::string> Receive(absl::Time deadline);

 private:
  absl::Status Await(short events, absl::Time deadline) const;

  int fd_ = -1;
  std::string received_;  // and not yet given out
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_LINE_SOCKET_H_
