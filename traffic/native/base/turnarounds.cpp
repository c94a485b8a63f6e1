#include "base/turnarounds.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace etloop {

size_t turnaround_bucket(Nanos turnaround_ns) {
  const auto value = static_cast<uint64_t>(std::max<Nanos>(turnaround_ns, 1));
  const auto exponent = static_cast<size_t>(std::bit_width(value) - 1);
  if (exponent < 4) return static_cast<size_t>(value);
  const size_t fraction = (value >> (exponent - 4)) & 0xF;
  return std::min(kTurnaroundBuckets - 1, (exponent - 3) * 16 + fraction);
}

Nanos turnaround_floor_ns(size_t bucket) {
  if (bucket < 16) return static_cast<Nanos>(bucket);
  const size_t exponent = bucket / 16 + 3;
  return static_cast<Nanos>((uint64_t{16} | (bucket & 0xF)) << (exponent - 4));
}

}  // namespace etloop
