// Prefetching of memory that is needed soon: a large network in virtual time exceeds the caches, but its next accesses are known.
// Affects only speed.
#pragma once

#include <cstddef>

namespace etloop {

inline constexpr size_t kLineBytes = 64;  // cache line size of the supported machines

inline void prefetch(const void* at) {
  __builtin_prefetch(at);
  // GCC considers a prefetch side-effect free, and would remove calls of a function with nothing else.
  asm volatile("");
}

inline void prefetch(const void* at, size_t bytes) {
  for (size_t offset = 0; offset < bytes; offset += kLineBytes) prefetch(static_cast<const char*>(at) + offset);
}

}  // namespace etloop
