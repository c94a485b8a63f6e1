// Time as everything here counts it: nanoseconds, of a clock that the owner names.
#pragma once

#include <cstdint>

namespace etloop {

using Nanos = int64_t;
inline constexpr Nanos kNever = INT64_MAX;

}  // namespace etloop
