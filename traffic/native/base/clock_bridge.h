// Times of another clock on ours, from readings of both at one moment. Between the last two readings and beyond them the
// clocks are taken to run evenly. Pure.
#pragma once

#include <cstdlib>

#include "base/time.h"

namespace etloop {

class ClockBridge {
 public:
  // Clocks of network cards are off by parts in 10^5 at most; a greater difference means that one of them was set.
  static constexpr Nanos kMostDrift = 1'000;  // one part in so many

  void add(Nanos there_ns, Nanos here_ns) {
    const Nanos elapsed_here = here_ns - here_ns_;
    const Nanos elapsed_there = there_ns - there_ns_;
    const bool even = readings_ > 0 && elapsed_here > 0 && std::abs(elapsed_there - elapsed_here) <= elapsed_here / kMostDrift;
    drift_ = even ? static_cast<double>(elapsed_here - elapsed_there) / static_cast<double>(elapsed_there) : 0.0;
    there_ns_ = there_ns;
    here_ns_ = here_ns;
    ++readings_;
  }
  bool ready() const { return readings_ > 0; }
  Nanos here_of(Nanos there_ns) const {
    const Nanos since = there_ns - there_ns_;
    return here_ns_ + since + static_cast<Nanos>(static_cast<double>(since) * drift_);
  }

 private:
  Nanos there_ns_ = 0;
  Nanos here_ns_ = 0;
  double drift_ = 0;  // ours gained on theirs, per unit of theirs
  int64_t readings_ = 0;
};

}  // namespace etloop
