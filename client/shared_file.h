// SharedFile: a file in shared memory that another process of the same user opens by its
// path. Nothing of it is left when this process ends, however it ends. Not thread-safe.
#ifndef LEEWAY_CLIENT_SHARED_FILE_H_
#define LEEWAY_CLIENT_SHARED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace leeway {

class SharedFile {
 public:
  // Empty. `name` shows in lists of open files.
  static absl::StatusOr<SharedFile> Make(const std::string& name);
  SharedFile() = default;
  SharedFile(SharedFile&& other) noexcept;
  SharedFile& operator=(SharedFile&& other) noexcept;
  ~SharedFile();

  // For processes that see this one's /proc.
  const std::string& path() const { return path_; }

  // The file is then these parts, one after the other.
  absl::Status Write(absl::Span<const absl::string_view> parts);
  // Bytes [offset, offset + size) of the file; an error if it has fewer.
  absl::Status Read(uint64_t offset, char* out, size_t size) const;
  absl::StatusOr<uint64_t> Size() const;

 private:
  int fd_ = -1;
  std::string path_;
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_SHARED_FILE_H_
