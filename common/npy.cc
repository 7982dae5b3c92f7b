#include "common/npy.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/npy_header.h"
#include "common/status.h"

static_assert(std::endian::native == std::endian::little,
              "values are used as they lie in the file");

namespace leeway {
namespace {

constexpr absl::string_view kMagic = "\x93NUMPY";
// NumPy itself refuses longer headers by default.
constexpr uint64_t kMaxHeader = 10000;
constexpr absl::string_view kRemedy = "; save it with numpy.save(path, array.astype('<f8'))";

absl::Status Refuse(absl::string_view name, absl::string_view found, absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": ", found, ", expected ", expected, kRemedy));
}

// Bytes of a file as they may appear in a message: short and printable.
std::string Quoted(absl::string_view bytes) {
  const bool cut = bytes.size() > 60;
  return absl::StrCat("\"", absl::CHexEscape(bytes.substr(0, 60)), cut ? "...\"" : "\"");
}

struct TypeName {
  absl::string_view descr;
  NpyType type;
  uint64_t size;
};
constexpr TypeName kTypes[] = {{"<f4", NpyType::kFloat32, 4},
                               {"<f8", NpyType::kFloat64, 8},
                               {"|u1", NpyType::kUint8, 1},
                               {"<i4", NpyType::kInt32, 4},
                               {"<i8", NpyType::kInt64, 8}};

uint64_t ItemSize(NpyType type) {
  for (const TypeName& t : kTypes) {
    if (t.type == type) return t.size;
  }
  return 0;
}

struct Parsed {
  NpyType type;
  std::vector<uint64_t> shape;
  size_t offset;  // of the first value
};

// Finds the header's text and what follows it: the preamble is the magic, two
// bytes of version and the header's length in 2 (version 1) or 4 bytes.
absl::StatusOr<std::pair<absl::string_view, size_t>> HeaderText(absl::string_view bytes,
                                                                absl::string_view name) {
  if (!absl::StartsWith(bytes, kMagic)) {
    return Refuse(name,
                  bytes.empty() ? "the file is empty"
                                : absl::StrCat("starts with ", Quoted(bytes.substr(0, 6))),
                  "a NumPy array file (magic \"\\x93NUMPY\")");
  }
  const auto byte = [&](size_t i) { return uint64_t{static_cast<unsigned char>(bytes[i])}; };
  if (bytes.size() < 12) {
    return Refuse(name, absl::StrCat("truncated after ", bytes.size(), " bytes"), "a header");
  }
  const uint64_t version = byte(6);
  if (version < 1 || version > 3 || byte(7) != 0) {
    return Refuse(name, absl::StrCat("format version ", version, ".", byte(7)),
                  "version 1.0, 2.0 or 3.0");
  }
  uint64_t length = byte(8) | byte(9) << 8;
  if (version > 1) length |= byte(10) << 16 | byte(11) << 24;
  const size_t start = version > 1 ? 12 : 10;
  if (length > kMaxHeader) {
    return Refuse(name, absl::StrCat("a header of ", length, " bytes"),
                  absl::StrCat("at most ", kMaxHeader));
  }
  if (length > bytes.size() - start) {
    return Refuse(name,
                  absl::StrCat("truncated: the header has ", length, " bytes, the file ",
                               bytes.size() - start, " after the preamble"),
                  "a whole header");
  }
  return std::make_pair(bytes.substr(start, length), start + length);
}

absl::StatusOr<NpyType> TypeOf(const std::string& descr, absl::string_view name) {
  for (const TypeName& t : kTypes) {
    if (t.descr == descr) return t.type;
  }
  if (absl::StartsWith(descr, ">")) {
    return Refuse(name, absl::StrCat("big-endian values (descr ", Quoted(descr), ")"),
                  "little-endian ones");
  }
  return Refuse(name, absl::StrCat("values of type (descr) ", Quoted(descr)),
                "one of <f4, <f8, |u1, <i4, <i8");
}

// Bytes that an array takes, or nothing if that cannot be counted in 64 bits.
std::optional<uint64_t> ByteCount(absl::Span<const uint64_t> shape, uint64_t item_size) {
  // Without the extents of 0, so that no overflow hides behind one.
  uint64_t count = item_size;
  bool empty = false;
  for (uint64_t extent : shape) {
    if (extent == 0) {
      empty = true;
    } else if (count > std::numeric_limits<int64_t>::max() / extent) {
      return std::nullopt;
    } else {
      count *= extent;
    }
  }
  return empty ? 0 : count;
}

absl::StatusOr<Parsed> ParseBytes(absl::string_view bytes, absl::string_view name) {
  LEEWAY_ASSIGN_OR_RETURN(const auto header_and_offset, HeaderText(bytes, name));
  const auto [text, offset] = header_and_offset;
  std::optional<NpyHeader> header = NpyHeaderReader(text).Read();
  if (!header) {
    return Refuse(name, absl::StrCat("header ", Quoted(text)),
                  "{'descr': '<f8', 'fortran_order': False, 'shape': (n, ...), }");
  }
  LEEWAY_ASSIGN_OR_RETURN(const NpyType type, TypeOf(*header->descr, name));
  if (*header->fortran_order) {
    return Refuse(name, "Fortran order (column by column)",
                  "C order: numpy.ascontiguousarray(array)");
  }
  const std::string shape = absl::StrCat("(", absl::StrJoin(*header->shape, ", "), ")");
  const std::optional<uint64_t> count = ByteCount(*header->shape, ItemSize(type));
  if (!count) {
    return Refuse(name, absl::StrCat("shape ", shape), "a size that fits in 63 bits");
  }
  const uint64_t held = bytes.size() - offset;
  if (held != *count) {
    return Refuse(
        name,
        absl::StrCat(held < *count ? "truncated: " : "trailing bytes: ", held, " bytes of values"),
        absl::StrCat(*count, " for shape ", shape, " of ", *header->descr));
  }
  return Parsed{type, *std::move(header->shape), offset};
}

absl::Status Errno(absl::string_view doing, const std::string& path) {
  const int error = errno;
  return absl::ErrnoToStatus(error, absl::StrCat("cannot ", doing, " ", path));
}

struct Mapping {
  std::shared_ptr<const void> owner;
  absl::string_view bytes;
};

absl::StatusOr<Mapping> MapFile(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer. It does nothing to files.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Errno("open", path);
  absl::Status status;
  void* start = nullptr;
  struct stat info;
  if (::fstat(fd, &info) != 0) {
    status = Errno("stat", path);
  } else if (!S_ISREG(info.st_mode)) {
    status = Refuse(path, "not a regular file", "a NumPy array file");
  } else if (info.st_size == 0) {  // mmap refuses length 0
    status = Refuse(path, "the file is empty", "a NumPy array file");
  } else {
    start = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    if (start == MAP_FAILED) {
      status = Errno("map", path);
      status = absl::Status(
          status.code(), absl::StrCat(status.message(),
                                      "; every file is one memory map: if this process hosts "
                                      "many clients, raise sysctl vm.max_map_count or host fewer"));
    }
  }
  ::close(fd);  // a mapping stays
  LEEWAY_RETURN_IF_ERROR(status);
  const size_t size = static_cast<size_t>(info.st_size);
  std::shared_ptr<const void> owner(start, [start, size](const void*) { ::munmap(start, size); });
  return Mapping{std::move(owner), absl::string_view(static_cast<const char*>(start), size)};
}

// A conversion that is defined for every value: out of range clamps, NaN is 0.
template <typename To, typename From>
To Convert(From value) {
  if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    if (std::isnan(value)) return 0;
    if (value >= From(0x1p63)) return std::numeric_limits<To>::max();
    if (value < From(-0x1p63)) return std::numeric_limits<To>::min();
  }
  return static_cast<To>(value);
}

template <typename To, typename From>
std::vector<To> Copy(const std::byte* data, size_t size) {
  std::vector<To> values(size);
  for (To& value : values) {
    From from;  // the file need not be aligned
    std::memcpy(&from, data, sizeof(From));
    value = Convert<To>(from);
    data += sizeof(From);
  }
  return values;
}

absl::Status WriteAll(int fd, absl::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Errno("write", path);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

// Writes under another name and renames: a reader never sees half a file.
absl::Status WriteFile(const std::string& path, absl::string_view header,
                       absl::string_view values) {
  static std::atomic<uint64_t> counter = 0;
  const std::string temporary = absl::StrCat(path, ".tmp-", ::getpid(), "-", ++counter);
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return Errno("create", temporary);
  absl::Status status = WriteAll(fd, header, temporary);
  status.Update(WriteAll(fd, values, temporary));
  if (::close(fd) != 0) status.Update(Errno("close", temporary));
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) {
    status = Errno("rename to", path);
  }
  if (!status.ok()) ::unlink(temporary.c_str());
  return status;
}

template <typename T>
constexpr absl::string_view DescrOf() {
  if constexpr (std::is_same_v<T, float>) return "<f4";
  if constexpr (std::is_same_v<T, double>) return "<f8";
  if constexpr (std::is_same_v<T, uint8_t>) return "|u1";
  if constexpr (std::is_same_v<T, int32_t>) return "<i4";
  if constexpr (std::is_same_v<T, int64_t>) return "<i8";
}

// Byte for byte what numpy.save writes: format 1.0, padded to a multiple of 64.
std::string FormatHeader(absl::string_view descr, absl::Span<const uint64_t> shape) {
  std::string dictionary =
      absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (",
                   absl::StrJoin(shape, ", "), shape.size() == 1 ? ",), }" : "), }");
  constexpr size_t kPreamble = 10;
  // NumPy leaves room for the first extent to grow to 21 digits in place, and
  // always pads with at least one space.
  if (!shape.empty()) dictionary.append(21 - absl::StrCat(shape[0]).size(), ' ');
  dictionary.append(64 - (kPreamble + dictionary.size() + 1) % 64, ' ');
  dictionary.push_back('\n');
  const size_t length = dictionary.size();
  return absl::StrCat(kMagic, absl::string_view("\x01\x00", 2),
                      std::string{static_cast<char>(length & 0xff), static_cast<char>(length >> 8)},
                      dictionary);
}

}  // namespace

absl::StatusOr<NpyArray> NpyArray::Map(const std::string& path) {
  LEEWAY_ASSIGN_OR_RETURN(const Mapping mapping, MapFile(path));
  LEEWAY_ASSIGN_OR_RETURN(Parsed parsed, ParseBytes(mapping.bytes, path));
  NpyArray array;
  array.owner_ = mapping.owner;
  array.data_ = static_cast<const std::byte*>(mapping.owner.get()) + parsed.offset;
  array.type_ = parsed.type;
  array.shape_ = std::move(parsed.shape);
  return array;
}

absl::StatusOr<NpyArray> NpyArray::Parse(absl::string_view bytes, absl::string_view name) {
  auto copy = std::make_shared<const std::string>(bytes);
  LEEWAY_ASSIGN_OR_RETURN(Parsed parsed, ParseBytes(*copy, name));
  NpyArray array;
  array.data_ = reinterpret_cast<const std::byte*>(copy->data()) + parsed.offset;
  array.owner_ = std::move(copy);
  array.type_ = parsed.type;
  array.shape_ = std::move(parsed.shape);
  return array;
}

NpyArray NpyArray::Of(absl::Span<const double> values, std::vector<uint64_t> shape) {
  constexpr std::align_val_t kAlignment{64};
  const size_t bytes = values.size() * sizeof(double);
  const std::shared_ptr<void> copy(::operator new(bytes, kAlignment),
                                   [](void* p) { ::operator delete(p, kAlignment); });
  std::memcpy(copy.get(), values.data(), bytes);
  NpyArray array;
  array.data_ = static_cast<const std::byte*>(copy.get());
  array.owner_ = copy;
  array.type_ = NpyType::kFloat64;
  array.shape_ = std::move(shape);
  return array;
}

size_t NpyArray::size() const {
  size_t count = 1;
  for (uint64_t extent : shape_) count *= extent;
  return count;
}

template <typename T>
std::vector<T> NpyArray::As() const {
  if (data_ == nullptr) return {};
  switch (type_) {
    case NpyType::kFloat32:
      return Copy<T, float>(data_, size());
    case NpyType::kFloat64:
      return Copy<T, double>(data_, size());
    case NpyType::kUint8:
      return Copy<T, uint8_t>(data_, size());
    case NpyType::kInt32:
      return Copy<T, int32_t>(data_, size());
    case NpyType::kInt64:
      return Copy<T, int64_t>(data_, size());
  }
  return {};
}

template <typename T>
absl::Status WriteNpy(const std::string& path, absl::Span<const uint64_t> shape,
                      absl::Span<const T> values) {
  const std::optional<uint64_t> count = ByteCount(shape, sizeof(T));
  if (!count || *count != values.size() * sizeof(T)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", values.size(),
                                                   " values do not fill the shape (",
                                                   absl::StrJoin(shape, ", "), ")"));
  }
  return WriteFile(
      path, FormatHeader(DescrOf<T>(), shape),
      absl::string_view(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)));
}

template std::vector<float> NpyArray::As<float>() const;
template std::vector<double> NpyArray::As<double>() const;
template std::vector<int64_t> NpyArray::As<int64_t>() const;

#define LEEWAY_INSTANTIATE(T)                                                       \
  template absl::Status WriteNpy<T>(const std::string&, absl::Span<const uint64_t>, \
                                    absl::Span<const T>)
LEEWAY_INSTANTIATE(float);
LEEWAY_INSTANTIATE(double);
LEEWAY_INSTANTIATE(uint8_t);
LEEWAY_INSTANTIATE(int32_t);
LEEWAY_INSTANTIATE(int64_t);
#undef LEEWAY_INSTANTIATE

}  // namespace leeway
