// Placement and scheduling of a loop's thread: pinned to its own core, before everything that is not real-time; and the share of
// that core that a real-time thread leaves to others.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"

namespace etloop {

struct ThreadPlace {
  int32_t processor = -1;         // -1: chosen by the scheduler
  int32_t realtime_priority = 0;  // of SCHED_FIFO; 0: an ordinary thread
};

// Apply a placement; return what failed, with remedies; empty: all applied.
std::vector<std::string> place_thread(pthread_t thread, const ThreadPlace& place);

// Give the calling thread the highest ordinary priority, if permitted, for the times when it is an ordinary thread.
void be_first_of_ordinary();
void become_ordinary();
void become_realtime(int32_t priority);

// The kernel stops a real-time thread that uses more than 95 % of a second for the rest of it (sched_rt_runtime_us with
// RT_GROUP_SCHED; since 6.12 the fair server, kernel/sched/deadline.c): up to 50 ms without sends. So the thread becomes an
// ordinary one for a small share of the time, often and briefly: waiting threads get the core at once for one turn, and an
// absence below 0.1 ms changes a rate over 10 ms by less than 1 %. Sleeping instead would leave less for all: on a virtual
// machine a sleep of 10 us takes 40, of which the kernel charges 35 to the sleeper.
class RealtimeShare {
 public:
  static constexpr Nanos kOrdinaryNs = 25'000;
  // 1 / ordinary share of the time: more than the kernel requires, which does not count the transitions.
  static constexpr int64_t kOrdinaryOf = 14;
  static constexpr Nanos kMostSavedNs = 1'000'000;

  // Whether to switch between ordinary and real-time; `ordinary()` is the new state. `now` does not decrease.
  bool changes(Nanos now) {
    // In units of the other share, so that short turns lose nothing to a division.
    const Nanos passed_ns = last_ns_ == 0 ? 0 : now - last_ns_;
    last_ns_ = now;
    owed_parts_ += ordinary_ ? -passed_ns * kParts : passed_ns;
    owed_parts_ = std::clamp(owed_parts_, -kMostSavedNs * kParts, kOrdinaryNs * kParts);
    const bool changed = ordinary_ ? owed_parts_ <= 0 : owed_parts_ >= kOrdinaryNs * kParts;
    ordinary_ ^= changed;
    return changed;
  }
  // For a thread about to sleep, which must wake at once; its owed share remains.
  void become_realtime() { ordinary_ = false; }
  bool ordinary() const { return ordinary_; }

 private:
  static constexpr int64_t kParts = kOrdinaryOf - 1;

  Nanos last_ns_ = 0;
  Nanos owed_parts_ = 0;  // below zero: ahead
  bool ordinary_ = false;
};

}  // namespace etloop
