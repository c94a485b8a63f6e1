// Converts times of another clock to this one, from simultaneous readings of both. Between and beyond the last two readings both
// are assumed to run evenly. Pure.
#pragma once

#include <cstdlib>

#include "base/time.h"

namespace etloop {

class ClockBridge {
 public:
  // NIC clocks are off by at most some 10^-5; a larger difference means that a clock was set.
  static constexpr Nanos kMostDrift = 1'000;  // 1 / largest drift

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
  double drift_ = 0;  // gain of this clock per unit of the other
  int64_t readings_ = 0;
};

}  // namespace etloop
