// A histogram of short times with 16 buckets per power of two, for turnarounds: the time from the arrival of a message to the
// departure of the first packet of a message that it released, in the same op or in a dependent one.
#pragma once

#include <cstddef>

#include "base/time.h"

namespace etloop {

inline constexpr size_t kTurnaroundBuckets = 512;

// Return the bucket of a turnaround, and the smallest turnaround of a bucket.
size_t turnaround_bucket(Nanos turnaround_ns);
Nanos turnaround_floor_ns(size_t bucket);

}  // namespace etloop
