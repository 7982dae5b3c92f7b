// Large blocks of memory in pages of 2 MiB, where Linux lets a program ask for them
// (transparent_hugepage = madvise): a model of 100 MB then costs 50 page faults instead of 25,000.
#ifndef LEEWAY_COMMON_HUGE_PAGES_H_
#define LEEWAY_COMMON_HUGE_PAGES_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace leeway {

// Before the memory is first written to. Does nothing for small blocks.
inline void PreferHugePages(void* memory, size_t bytes) {
  constexpr uintptr_t kPage = uintptr_t{2} << 20;
  const auto begin = (reinterpret_cast<uintptr_t>(memory) + kPage - 1) / kPage * kPage;
  const auto end = (reinterpret_cast<uintptr_t>(memory) + bytes) / kPage * kPage;
  // Without huge pages everything works as well, only more slowly.
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace leeway

#endif  // LEEWAY_COMMON_HUGE_PAGES_H_
