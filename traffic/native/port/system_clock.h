// The two system clocks that the I/O layers read.
#pragma once

#include <ctime>

#include "base/time.h"

namespace etloop {

inline Nanos read_clock(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<Nanos>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}
// The steady clock of all engine times.
inline Nanos monotonic_ns() { return read_clock(CLOCK_MONOTONIC); }
// The clock of the kernel's timestamps.
inline Nanos realtime_ns() { return read_clock(CLOCK_REALTIME); }

}  // namespace etloop
