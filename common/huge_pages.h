// Large blocks of memory in pages of their own, of 2 MiB where Linux lets a program ask for them
// (transparent_hugepage = madvise): a model of 100 MB then costs 50 page faults instead of 25,000.
#ifndef LEEWAY_COMMON_HUGE_PAGES_H_
#define LEEWAY_COMMON_HUGE_PAGES_H_

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace leeway {

inline constexpr uintptr_t kHugePage = uintptr_t{2} << 20;

// Before the memory is first written to. Does nothing for small blocks.
inline void PreferHugePages(void* memory, size_t bytes) {
  const auto begin = (reinterpret_cast<uintptr_t>(memory) + kHugePage - 1) / kHugePage * kHugePage;
  const auto end = (reinterpret_cast<uintptr_t>(memory) + bytes) / kHugePage * kHugePage;
  // Without huge pages everything works as well, only more slowly.
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

// Blocks from this size on are mapped by themselves, and go back to the system when they are
// freed. From malloc they would come out of the heap of whichever thread asks, and the holes
// that they leave in a dozen heaps add up. AddressSanitizer sees the end of a block that it
// allocated itself.
#ifdef __SANITIZE_ADDRESS__
inline constexpr size_t kLeastMapped = SIZE_MAX;
#else
inline constexpr size_t kLeastMapped = size_t{1} << 20;
#endif

// `bytes` bytes, a multiple of 64, aligned to 64; not filled.
inline std::byte* AllocateBlock(size_t bytes) {
  if (bytes < kLeastMapped) {
    void* p = std::aligned_alloc(64, bytes);
    if (p == nullptr) throw std::bad_alloc();
    return static_cast<std::byte*>(p);
  }
  // Aligned to a huge page: what is mapped before and after is given back at once.
  const size_t wide = bytes + kHugePage;
  void* p = mmap(nullptr, wide, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  auto* const begin = static_cast<std::byte*>(p);
  const size_t before = -reinterpret_cast<uintptr_t>(p) % kHugePage;
  static const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t used = (before + bytes + page - 1) / page * page;
  if (before > 0) munmap(begin, before);
  if (used < wide) munmap(begin + used, wide - used);
  PreferHugePages(begin + before, bytes);
  return begin + before;
}

inline void FreeBlock(std::byte* p, size_t bytes) {
  bytes < kLeastMapped ? std::free(p) : static_cast<void>(munmap(p, bytes));
}

}  // namespace leeway

#endif  // LEEWAY_COMMON_HUGE_PAGES_H_
