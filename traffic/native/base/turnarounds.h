// A histogram of short times with 16 buckets per power of two, for turnarounds: the time from the arrival of a message to the
// departure of the first packet of a message that it released, in the same op or in a dependent one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace etloop {

inline constexpr size_t kTurnaroundBuckets = 512;

// Parts of a turnaround, in order: from the arrival stamp until the packet is read from the port, until the next turn of the loop
// to send, until its queue pair is served, and until the call that sends returned.
enum class TurnaroundPart : uint8_t { receive_queue = 0, loop = 1, arbitration = 2, send_call = 3 };
inline constexpr size_t kTurnaroundParts = 4;

// The arrival that released a message, and how long it waited to be read. 0: no arrival did.
struct Trigger {
  Nanos arrived_ns = 0;
  uint32_t queued_ns = 0;
};

// Return the bucket of a turnaround, and the smallest turnaround of a bucket.
size_t turnaround_bucket(Nanos turnaround_ns);
Nanos turnaround_floor_ns(size_t bucket);

}  // namespace etloop
