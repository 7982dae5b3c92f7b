// The bytes of a file, gunzipped on the way when the file is a gzip file (by its
// first bytes, not by its name). Reads forward once; not thread-safe.
#ifndef LEEWAY_CLIENT_IMPORT_BYTE_STREAM_H_
#define LEEWAY_CLIENT_IMPORT_BYTE_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace leeway {

class ByteStream {
 public:
  static absl::StatusOr<ByteStream> Open(const std::string& path);
  ByteStream(ByteStream&&) noexcept;
  ByteStream& operator=(ByteStream&&) noexcept;
  ~ByteStream();

  // Fills `buffer` as far as the file goes; fewer bytes than asked for only at
  // its end. A gzip file that is cut off or corrupt is an error.
  absl::StatusOr<size_t> Read(char* buffer, size_t size);
  const std::string& path() const;

 private:
  struct State;
  explicit ByteStream(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The whole file, with room for `padding` more bytes behind it.
absl::StatusOr<std::string> ReadAll(const std::string& path, size_t padding = 0);

// Lines of a text file, without their line ends (\n or \r\n).
class LineReader {
 public:
  static absl::StatusOr<LineReader> Open(const std::string& path);
  // False at the end of the file.
  absl::StatusOr<bool> Next(std::string* line);
  // "path:17", for messages.
  std::string Where() const;

 private:
  explicit LineReader(ByteStream stream);
  ByteStream stream_;
  std::vector<char> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  uint64_t number_ = 0;
};

// Regular files of a directory, sorted, hidden ones left out; those whose names
// end in one of `suffixes` (all when empty). A file stands for itself.
absl::StatusOr<std::vector<std::string>> ListFiles(const std::string& path,
                                                   const std::vector<std::string>& suffixes);

}  // namespace leeway

#endif  // LEEWAY_CLIENT_IMPORT_BYTE_STREAM_H_
