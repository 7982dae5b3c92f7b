// HeadFile: names the last round that a run has committed, outside of its database, so that a
// write-ahead log that was deleted or cut is noticed. Overwritten in place after each commit and
// not synced: a killed process leaves it right; after power loss it may name an earlier
// round, or, with durability RELAXED, a later one than the database has.
// Only the run store includes this file. Not thread-safe.
#ifndef LEEWAY_RECORDS_HEAD_FILE_H_
#define LEEWAY_RECORDS_HEAD_FILE_H_

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/durable_file.h"
#include "common/status.h"

namespace leeway {

struct Head {
  uint64_t round = 0;
  int64_t checksum = 0;  // of that round
  std::string boot;      // the boot of the machine in which it was written
};

class HeadFile {
 public:
  explicit HeadFile(const std::string& directory) : path_(directory + "/head") {}
  ~HeadFile() {
    if (fd_ >= 0) close(fd_);
  }
  HeadFile(const HeadFile&) = delete;
  HeadFile& operator=(const HeadFile&) = delete;

  const std::string& path() const { return path_; }

  // Nothing if there is no file, or none that was written in full.
  std::optional<Head> Read() const {
    std::ifstream file(path_);
    std::string magic, end;
    Head head;
    file >> magic >> head.round >> head.checksum >> head.boot >> end;
    if (!file || magic != "leeway-head-1" || end != "end") return std::nullopt;
    return head;
  }

  absl::Status Write(uint64_t round, int64_t checksum, bool sync) {
    if (fd_ < 0) fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd_ < 0) return FileError("cannot create", path_, errno);
    // Of one length, so that it is replaced as a whole.
    const std::string text =
        absl::StrFormat("leeway-head-1 %020d %021d %s end\n", round, checksum, boot_);
    if (pwrite(fd_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
      return FileError("cannot write", path_, errno);
    }
    if (sync && fsync(fd_) != 0) return FileError("cannot sync", path_, errno);
    return absl::OkStatus();
  }

  static std::string BootId() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    file >> id;
    return id.empty() ? "unknown" : id;
  }

 private:
  const std::string path_;
  const std::string boot_ = BootId();
  int fd_ = -1;
};

}  // namespace leeway

#endif  // LEEWAY_RECORDS_HEAD_FILE_H_
