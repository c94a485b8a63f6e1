// Time in nanoseconds, on a clock that the owner defines.
#pragma once

#include <cstdint>

namespace etloop {

using Nanos = int64_t;
inline constexpr Nanos kNever = INT64_MAX;

}  // namespace etloop
