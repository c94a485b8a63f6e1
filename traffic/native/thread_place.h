// Where a loop's thread runs and how the kernel treats it: on a core of its own, before everything that is not real-time.
// And how much of that core a real-time thread leaves to the rest.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "port.h"

namespace etloop {

struct ThreadPlace {
  int32_t processor = -1;         // -1: wherever the scheduler likes
  int32_t realtime_priority = 0;  // of SCHED_FIFO; 0: an ordinary thread
};

// What of it could not be had, and what to do; empty: all of it.
std::vector<std::string> place_thread(pthread_t thread, const ThreadPlace& place);

// Returns how long it slept.
Nanos sleep_for(Nanos length_ns);

// A real-time thread that takes more than 95 % of a second is stopped for the rest of it (Linux sched_rt_runtime_us; since
// 6.12 the fair server, kernel/sched/deadline.c): up to 50 ms in which nothing leaves. So it rests before, often and shortly.
class RestAccount {
 public:
  static constexpr Nanos kRestNs = 10'000;
  static constexpr Nanos kMostOwedNs = 4 * kRestNs;
  static constexpr Nanos kRestEvery = 15;  // one part in so many of the time that passes
  static constexpr Nanos kMostSavedNs = 1'000'000;

  // Whether a rest of kRestNs is owed; of a thread with `work` at hand only once it cannot be put off any more. `now` does not
  // go back.
  bool due(Nanos now, bool work) {
    if (last_ns_ != 0) owed_ns_ += (now - last_ns_) / kRestEvery;
    last_ns_ = now;
    return owed_ns_ >= (work ? kMostOwedNs : kRestNs);
  }
  // The thread slept for so long, for whatever reason.
  void rested(Nanos slept_ns) { owed_ns_ = std::max(owed_ns_ - slept_ns, -kMostSavedNs); }

 private:
  Nanos last_ns_ = 0;
  Nanos owed_ns_ = 0;
};

}  // namespace etloop
