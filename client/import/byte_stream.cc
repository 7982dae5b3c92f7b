#include "client/import/byte_stream.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace leeway {
namespace {

constexpr size_t kBlock = size_t{1} << 18;

}  // namespace

struct ByteStream::State {
  std::string path;
  std::FILE* file = nullptr;
  bool gzip = false;
  bool inside = false;  // a gzip member has begun and not ended
  z_stream zlib{};
  std::vector<unsigned char> input;

  ~State() {
    if (gzip) inflateEnd(&zlib);
    if (file != nullptr) std::fclose(file);
  }

  absl::Status Refill() {
    const size_t count = std::fread(input.data(), 1, input.size(), file);
    if (std::ferror(file)) {
      return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
    }
    zlib.next_in = input.data();
    zlib.avail_in = static_cast<unsigned>(count);
    return absl::OkStatus();
  }

  // One step of inflating what is in `input`; starts the next member of a file
  // of several.
  absl::Status Inflate() {
    if (!inside) {
      inflateReset(&zlib);
      inside = true;
    }
    const int code = inflate(&zlib, Z_NO_FLUSH);
    if (code == Z_STREAM_END) {
      inside = false;
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      return absl::DataLossError(absl::StrCat(path, ": the gzip data are corrupt (",
                                              zlib.msg == nullptr ? "zlib error" : zlib.msg,
                                              "); get the file again"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<size_t> ReadGzip(char* buffer, size_t size) {
    size_t filled = 0;
    while (filled < size) {
      const size_t room = std::min(size - filled, kBlock);
      zlib.next_out = reinterpret_cast<unsigned char*>(buffer + filled);
      zlib.avail_out = static_cast<unsigned>(room);
      if (zlib.avail_in == 0) LEEWAY_RETURN_IF_ERROR(Refill());
      if (zlib.avail_in == 0 && !inside) break;
      const bool at_end = zlib.avail_in == 0;
      LEEWAY_RETURN_IF_ERROR(Inflate());
      const size_t made = room - zlib.avail_out;
      filled += made;
      if (at_end && made == 0 && inside) {
        return absl::DataLossError(
            absl::StrCat(path, ": the gzip data end too early; get the file again"));
      }
    }
    return filled;
  }
};

ByteStream::ByteStream(std::unique_ptr<State> state) : state_(std::move(state)) {}
ByteStream::ByteStream(ByteStream&&) noexcept = default;
ByteStream& ByteStream::operator=(ByteStream&&) noexcept = default;
ByteStream::~ByteStream() = default;

const std::string& ByteStream::path() const { return state_->path; }

absl::StatusOr<ByteStream> ByteStream::Open(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a directory, expected a file"));
  }
  // Opening a FIFO would wait for a writer, and no other file can be read twice.
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is not a regular file; write what it gives to a file first"));
  }
  auto state = std::make_unique<State>();
  state->path = path;
  state->file = std::fopen(path.c_str(), "rb");
  if (state->file == nullptr) {
    return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  unsigned char magic[2] = {0, 0};
  state->gzip = std::fread(magic, 1, 2, state->file) == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
  std::rewind(state->file);
  if (state->gzip) {
    state->input.resize(kBlock);
    // 16: expect a gzip header.
    if (inflateInit2(&state->zlib, 15 + 16) != Z_OK) {
      state->gzip = false;
      return absl::ResourceExhaustedError(absl::StrCat(path, ": zlib has no memory"));
    }
  }
  return ByteStream(std::move(state));
}

absl::StatusOr<size_t> ByteStream::Read(char* buffer, size_t size) {
  if (state_->gzip) return state_->ReadGzip(buffer, size);
  const size_t count = std::fread(buffer, 1, size, state_->file);
  if (std::ferror(state_->file)) {
    return absl::UnavailableError(absl::StrCat(state_->path, ": ", std::strerror(errno)));
  }
  return count;
}

absl::StatusOr<std::string> ReadAll(const std::string& path, size_t padding) {
  LEEWAY_ASSIGN_OR_RETURN(ByteStream stream, ByteStream::Open(path));
  std::error_code ignored;
  const auto on_disk = std::filesystem::file_size(path, ignored);
  std::string text(ignored ? kBlock : static_cast<size_t>(on_disk) + 1, '\0');
  size_t size = 0;
  while (true) {
    LEEWAY_ASSIGN_OR_RETURN(const size_t count, stream.Read(&text[size], text.size() - size));
    size += count;
    if (size < text.size()) break;
    text.resize(2 * text.size());
  }
  text.resize(size);
  text.reserve(size + padding);
  return text;
}

LineReader::LineReader(ByteStream stream) : stream_(std::move(stream)), buffer_(kBlock) {}

absl::StatusOr<LineReader> LineReader::Open(const std::string& path) {
  LEEWAY_ASSIGN_OR_RETURN(ByteStream stream, ByteStream::Open(path));
  return LineReader(std::move(stream));
}

std::string LineReader::Where() const { return absl::StrCat(stream_.path(), ":", number_); }

absl::StatusOr<bool> LineReader::Next(std::string* line) {
  line->clear();
  bool found = false;
  while (true) {
    if (begin_ == end_) {
      LEEWAY_ASSIGN_OR_RETURN(end_, stream_.Read(buffer_.data(), buffer_.size()));
      begin_ = 0;
      if (end_ == 0) break;
    }
    found = true;
    const char* start = buffer_.data() + begin_;
    const auto* newline = static_cast<const char*>(std::memchr(start, '\n', end_ - begin_));
    if (newline != nullptr) {
      line->append(start, newline);
      begin_ += static_cast<size_t>(newline - start) + 1;
      break;
    }
    line->append(start, end_ - begin_);
    begin_ = end_;
  }
  if (found) ++number_;
  if (!line->empty() && line->back() == '\r') line->pop_back();
  return found;
}

absl::StatusOr<std::vector<std::string>> ListFiles(const std::string& path,
                                                   const std::vector<std::string>& suffixes) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(path, error)) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file or directory"));
  }
  if (!fs::is_directory(path, error)) return std::vector<std::string>{path};
  std::vector<std::string> files;
  fs::directory_iterator entries(path, error);
  if (error) return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename().string();
    const bool wanted = suffixes.empty() ||
                        std::any_of(suffixes.begin(), suffixes.end(), [&](const std::string& end) {
                          return absl::EndsWith(name, end);
                        });
    if (entry.is_regular_file(error) && wanted && name[0] != '.') {
      files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace leeway
