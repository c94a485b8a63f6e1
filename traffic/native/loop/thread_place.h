// Where a loop's thread runs and how the kernel treats it: on a core of its own, before everything that is not real-time.
// And how much of that core a real-time thread leaves to the rest.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"

namespace etloop {

struct ThreadPlace {
  int32_t processor = -1;         // -1: wherever the scheduler likes
  int32_t realtime_priority = 0;  // of SCHED_FIFO; 0: an ordinary thread
};

// What of it could not be had, and what to do; empty: all of it.
std::vector<std::string> place_thread(pthread_t thread, const ThreadPlace& place);

// Of the calling thread: before all other ordinary ones, where that is permitted, while it is an ordinary one.
void be_first_of_ordinary();
void become_ordinary();
void become_realtime(int32_t priority);

// A real-time thread that takes more than 95 % of a second is stopped for the rest of it (Linux sched_rt_runtime_us where
// the kernel has RT_GROUP_SCHED; since 6.12 the fair server, kernel/sched/deadline.c): up to 50 ms in which nothing leaves.
// So it is an ordinary thread for a small part of the time, often and shortly: who waits for the core takes it at once and has
// it for one turn, and what is away for less than 0.1 ms changes a rate over 10 ms by less than 1 %. To sleep instead would
// leave less to all: on a virtual machine a sleep of 10 us takes 40, of which the kernel charges 35 to the thread that sleeps.
class RealtimeShare {
 public:
  static constexpr Nanos kOrdinaryNs = 25'000;
  // One part in so many of the time that passes: more than the kernel wants, which does not count the ways into and out of it.
  static constexpr int64_t kOrdinaryOf = 14;
  static constexpr Nanos kMostSavedNs = 1'000'000;

  // Whether the thread is to become what it was not, ordinary or real-time; `ordinary()` is what it is to be then. `now` does
  // not go back.
  bool changes(Nanos now) {
    // In parts of the other share, so that short turns lose nothing to a division.
    const Nanos passed_ns = last_ns_ == 0 ? 0 : now - last_ns_;
    last_ns_ = now;
    owed_parts_ += ordinary_ ? -passed_ns * kParts : passed_ns;
    owed_parts_ = std::clamp(owed_parts_, -kMostSavedNs * kParts, kOrdinaryNs * kParts);
    const bool changed = ordinary_ ? owed_parts_ <= 0 : owed_parts_ >= kOrdinaryNs * kParts;
    ordinary_ ^= changed;
    return changed;
  }
  // For a thread that is about to sleep, to be woken at once; what it owes it owes on.
  void become_realtime() { ordinary_ = false; }
  bool ordinary() const { return ordinary_; }

 private:
  static constexpr int64_t kParts = kOrdinaryOf - 1;

  Nanos last_ns_ = 0;
  Nanos owed_parts_ = 0;  // below zero: ahead
  bool ordinary_ = false;
};

}  // namespace etloop
