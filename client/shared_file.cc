#include "client/shared_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace leeway {
namespace {

absl::Status Failed(absl::string_view what) {
  return absl::ResourceExhaustedError(
      absl::StrCat("shared memory: ", what, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<SharedFile> SharedFile::Make(const std::string& name) {
  SharedFile file;
  file.fd_ = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (file.fd_ < 0) return Failed("cannot make a file");
  file.path_ = absl::StrCat("/proc/", getpid(), "/fd/", file.fd_);
  return file;
}

SharedFile::SharedFile(SharedFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

SharedFile& SharedFile::operator=(SharedFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

SharedFile::~SharedFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status SharedFile::Write(absl::Span<const absl::string_view> parts) {
  uint64_t offset = 0;
  for (absl::string_view part : parts) {
    while (!part.empty()) {
      const ssize_t n = pwrite(fd_, part.data(), part.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return Failed("cannot write");
      part.remove_prefix(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
  }
  if (ftruncate(fd_, static_cast<off_t>(offset)) != 0) return Failed("cannot set the size");
  return absl::OkStatus();
}

absl::Status SharedFile::Read(uint64_t offset, char* out, size_t size) const {
  while (size > 0) {
    const ssize_t n = pread(fd_, out, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("cannot read");
    if (n == 0) return absl::DataLossError("the file is shorter than it says");
    out += n;
    offset += static_cast<uint64_t>(n);
    size -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> SharedFile::Size() const {
  struct stat facts;
  if (fstat(fd_, &facts) != 0) return Failed("cannot read the size");
  return static_cast<uint64_t>(facts.st_size);
}

}  // namespace leeway
