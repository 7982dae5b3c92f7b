// Buffer: a fixed block of memory, aligned for vector loads, and kept for reuse. Unlike a
// string it is not filled before it is written to. A large one has pages of its own, huge
// ones where the system has them: it leaves no hole in the heap of the thread that made it.
#ifndef LEEWAY_COMMON_BUFFER_H_
#define LEEWAY_COMMON_BUFFER_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/string_view.h"
#include "common/account.h"
#include "common/huge_pages.h"

namespace leeway {

class Buffer {
 public:
  // The account, if any, has the buffer's memory as long as the buffer does.
  explicit Buffer(Account* account = nullptr) : account_(account) {}
  explicit Buffer(absl::string_view bytes, Account* account = nullptr) : account_(account) {
    Resize(bytes.size());
    if (!bytes.empty()) std::memcpy(data(), bytes.data(), bytes.size());
  }

  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    data_ = std::move(other.data_);
    size_ = std::exchange(other.size_, 0);
    account_ = other.account_;
    return *this;
  }

  // At least `size` bytes; contents are undefined afterwards.
  void Resize(size_t size) {
    if (size > capacity()) {
      data_.reset();
      const size_t rounded = (std::max<size_t>(size, 64) + 63) / 64 * 64;
      data_ = {AllocateBlock(rounded), Free{rounded, account_}};
      if (account_) account_->Add(rounded);
    }
    size_ = size;
  }
  // Gives the memory back if there is more of it than this.
  void Trim(size_t most) {
    if (capacity() <= most) return;
    data_.reset();
    size_ = 0;
  }
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  absl::string_view view() const { return {reinterpret_cast<const char*>(data()), size_}; }

 private:
  struct Free {
    Free() : bytes(0), account(nullptr) {}
    Free(size_t size, Account* whose) : bytes(size), account(whose) {}
    size_t bytes;
    Account* account;
    void operator()(std::byte* p) const {
      FreeBlock(p, bytes);
      if (account) account->Remove(bytes);
    }
  };
  size_t capacity() const { return data_ ? data_.get_deleter().bytes : 0; }

  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
  Account* account_ = nullptr;
};

}  // namespace leeway

#endif  // LEEWAY_COMMON_BUFFER_H_
