// Buffer: a fixed block of memory, aligned for vector loads, in huge pages where it is
// large, and kept for reuse. Unlike a string it is not filled before it is written to.
#ifndef LEEWAY_COMMON_BUFFER_H_
#define LEEWAY_COMMON_BUFFER_H_

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "absl/strings/string_view.h"
#include "common/huge_pages.h"

namespace leeway {

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(absl::string_view bytes) {
    Resize(bytes.size());
    if (!bytes.empty()) std::memcpy(data(), bytes.data(), bytes.size());
  }

  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    data_ = std::move(other.data_);
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, 0);
    return *this;
  }

  // At least `size` bytes; contents are undefined afterwards.
  void Resize(size_t size) {
    if (size > capacity_) {
      data_.reset();
      const size_t rounded = (std::max<size_t>(size, 64) + 63) / 64 * 64;
      auto* p = static_cast<std::byte*>(std::aligned_alloc(64, rounded));
      if (p == nullptr) throw std::bad_alloc();
      PreferHugePages(p, rounded);
      data_.reset(p);
      capacity_ = rounded;
    }
    size_ = size;
  }
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  absl::string_view view() const { return {reinterpret_cast<const char*>(data()), size_}; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace leeway

#endif  // LEEWAY_COMMON_BUFFER_H_
