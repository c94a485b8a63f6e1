// Memory that is needed soon, asked for before it is: a large network in virtual time does not fit the caches, and what it
// needs next is known. Changes nothing but speed.
#pragma once

#include <cstddef>

namespace etloop {

inline constexpr size_t kLineBytes = 64;  // of a cache, on the machines that this is for

inline void prefetch(const void* at) {
  __builtin_prefetch(at);
  // To gcc a prefetch is no effect: it would remove the calls of a function that does nothing else.
  asm volatile("");
}

inline void prefetch(const void* at, size_t bytes) {
  for (size_t offset = 0; offset < bytes; offset += kLineBytes) prefetch(static_cast<const char*>(at) + offset);
}

}  // namespace etloop
