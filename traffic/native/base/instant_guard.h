// Ends what would go on for ever at one instant. Every loop in virtual time, and every loop of a port, asks it once a turn:
// a component that keeps asking for the instant that it was just served at is a defect, and is to be a failure with a name
// instead of a hang.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/time.h"

namespace etloop {

// Turns at one instant, without an operation ending, beyond which time is held not to advance. Far above what a run has: at an
// instant a port takes and sends a few frames, wakes once for each of its timers, and passes a few messages on.
inline uint64_t most_turns_at_an_instant(size_t ports) { return (uint64_t{1} << 20) + (uint64_t{ports} << 12); }

class InstantGuard {
 public:
  explicit InstantGuard(uint64_t most) : most_(most), left_(most) {}

  // Count a turn at `now`. `progress` returns a number that only grows, and is bounded in a run: of operations that have
  // ended. Return false if the last `most` turns or more were at this instant and none of them made progress. It looks at
  // time once in `most` turns, for turns are the hot loop.
  template <typename Progress>
  bool passes(Nanos now, Progress&& progress) {
    return --left_ != 0 || advances(now, progress());
  }

  // Return the failure that names the component which asked for the same instant again.
  [[gnu::cold]] std::string failure(const std::string& component) const {
    return "time does not advance: " + component + " is due at " + std::to_string(at_ns_) + " ns again and again, after " +
           std::to_string(most_) + " turns at that instant; this is a defect of etloop or of a plugin: report it with " +
           "the scenario";
  }

 private:
  [[gnu::noinline, gnu::cold]] bool advances(Nanos now, int64_t progress) {
    left_ = most_;
    const bool advanced = now != at_ns_ || progress != progress_;
    at_ns_ = now;
    progress_ = progress;
    return advanced;
  }

  uint64_t most_;
  uint64_t left_;  // turns until time is read
  Nanos at_ns_ = kNever;
  int64_t progress_ = 0;
};

}  // namespace etloop
