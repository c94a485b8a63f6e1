#include "bare/large_pages.h"

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>

namespace etloop {

namespace {

class LargePages final : public std::pmr::memory_resource {
  static constexpr size_t kPageBytes = size_t{2} << 20;
  static constexpr size_t kLeastBytes = size_t{1} << 20;

  static bool is_large(size_t bytes, size_t alignment) { return bytes >= kLeastBytes && alignment <= kPageBytes; }
  // Pages that are never written take no memory.
  static size_t rounded(size_t bytes) { return (bytes + kPageBytes - 1) & ~(kPageBytes - 1); }

  void* do_allocate(size_t bytes, size_t alignment) override {
    if (!is_large(bytes, alignment)) return std::pmr::new_delete_resource()->allocate(bytes, alignment);
    const size_t wanted = rounded(bytes);
    const size_t mapped = wanted + kPageBytes;  // a mapping is aligned to small pages only
    void* begin = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED) throw std::bad_alloc();
    auto* const first = static_cast<std::byte*>(begin);
    const size_t before = -reinterpret_cast<uintptr_t>(begin) & (kPageBytes - 1);
    if (before > 0) munmap(first, before);
    munmap(first + before + wanted, kPageBytes - before);
    madvise(first + before, wanted, MADV_HUGEPAGE);  // if refused, small pages are used
    return first + before;
  }

  void do_deallocate(void* at, size_t bytes, size_t alignment) override {
    if (!is_large(bytes, alignment)) {
      std::pmr::new_delete_resource()->deallocate(at, bytes, alignment);
    } else {
      munmap(at, rounded(bytes));
    }
  }

  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }
};

}  // namespace

std::pmr::memory_resource& large_pages() {
  static LargePages pages;
  return pages;
}

}  // namespace etloop
