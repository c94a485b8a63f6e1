// Detects virtual time that does not advance: a component that reschedules itself at the current instant forever. Every loop in
// virtual time, and every loop of a port, checks once per turn, so that such a defect is a failure with a name instead of a hang.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/time.h"

namespace etloop {

// Turns at one instant, without a completed operation, after which time counts as stuck. Far above a run's: at an instant a port
// handles a few frames, a wake-up per timer, and a few messages.
inline uint64_t most_turns_at_an_instant(size_t ports) { return (uint64_t{1} << 20) + (uint64_t{ports} << 12); }

class InstantGuard {
 public:
  explicit InstantGuard(uint64_t most) : most_(most), left_(most) {}

  // Count a turn at `now`. `progress` returns a bounded number that only grows: of completed operations. Returns false if the
  // last `most` turns or more were at this instant without progress. Reads the time only once per `most` turns, because turns are
  // the hot loop.
  template <typename Progress>
  bool passes(Nanos now, Progress&& progress) {
    return --left_ != 0 || advances(now, progress());
  }

  // Return the failure text, with the component that requested the same instant again.
  [[gnu::cold]] std::string failure(const std::string& component) const {
    return "time does not advance: " + component + " is scheduled at " + std::to_string(at_ns_) + " ns again and again, after " +
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
  uint64_t left_;  // turns until the next check
  Nanos at_ns_ = kNever;
  int64_t progress_ = 0;
};

}  // namespace etloop
