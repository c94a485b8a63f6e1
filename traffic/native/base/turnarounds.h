// Histogram of short times: 16 buckets per power of two. Turnarounds are counted in it, the time from the arrival of a
// message to the departure of the first packet of a message it released, in the same op or in one that waited for it.
#pragma once

#include <cstddef>

#include "base/time.h"

namespace etloop {

inline constexpr size_t kTurnaroundBuckets = 512;

// The histogram bucket of a turnaround, and the least turnaround a bucket holds.
size_t turnaround_bucket(Nanos turnaround_ns);
Nanos turnaround_floor_ns(size_t bucket);

}  // namespace etloop
