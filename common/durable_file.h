// Files that are there in full or not at all, also after a crash: written under
// a temporary name, synced, renamed, and the directory synced.
#ifndef LEEWAY_COMMON_DURABLE_FILE_H_
#define LEEWAY_COMMON_DURABLE_FILE_H_

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/failpoint.h"
#include "common/status.h"

namespace leeway {

inline constexpr char kTemporarySuffix[] = ".tmp";

inline absl::Status FileError(absl::string_view doing, const std::string& path, int error) {
  const std::string text = absl::StrCat(doing, " ", path, ": ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) {
    return absl::ResourceExhaustedError(absl::StrCat(text, "; free some space on its disk"));
  }
  return absl::ErrnoToStatus(error, text);
}

// Makes the names in a directory durable.
inline absl::Status SyncDirectory(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return FileError("cannot open", path, errno);
  const int result = fsync(fd);
  const int error = errno;
  close(fd);
  return result == 0 ? absl::OkStatus() : FileError("cannot sync", path, error);
}

inline absl::Status WriteAll(int fd, const std::string& path, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError("cannot write", path, errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

// Puts a finished temporary file in its place.
inline absl::Status Rename(const std::string& from, const std::string& to, bool sync) {
  Failpoint("file.before_rename");
  if (rename(from.c_str(), to.c_str()) != 0) return FileError("cannot rename to", to, errno);
  Failpoint("file.before_directory_sync");
#ifdef LEEWAY_MUTANT_SKIP_DIRECTORY_SYNC  // a deliberate bug that tests must find
  sync = false;
#endif
  return sync ? SyncDirectory(std::filesystem::path(to).parent_path()) : absl::OkStatus();
}

// After this returns the file is there in full, or (on error) as it was before.
inline absl::Status WriteFile(const std::string& path, absl::string_view bytes, bool sync,
                              mode_t mode = 0644) {
  const std::string temporary = absl::StrCat(path, kTemporarySuffix);
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (fd < 0) return FileError("cannot create", temporary, errno);
  absl::Status status = WriteAll(fd, temporary, bytes);
  Failpoint("file.before_sync");
  if (status.ok() && sync && fsync(fd) != 0) status = FileError("cannot sync", temporary, errno);
  if (close(fd) != 0 && status.ok()) status = FileError("cannot close", temporary, errno);
  if (status.ok()) status = Rename(temporary, path, sync);
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

// Gives the file `from` the second name `to` on the same file system, at no cost
// in space.
inline absl::Status LinkFile(const std::string& from, const std::string& to, bool sync) {
  const std::string temporary = absl::StrCat(to, kTemporarySuffix);
  unlink(temporary.c_str());
  if (link(from.c_str(), temporary.c_str()) != 0) return FileError("cannot link", from, errno);
  absl::Status status = Rename(temporary, to, sync);
  // A rename between two names of one file does nothing and leaves both.
  unlink(temporary.c_str());
  return status;
}

}  // namespace leeway

#endif  // LEEWAY_COMMON_DURABLE_FILE_H_
