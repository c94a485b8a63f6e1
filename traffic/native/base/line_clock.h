// Transmission times of a line. A frame's time is rarely a whole number of nanoseconds: each end is rounded up, and the excess is
// carried into the next frame of the same busy period. So consecutive frame times add up exactly, and a line is never faster than
// its rate. Integers only, so that runs are reproducible.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace etloop {

// Duration of a transmission: `whole_ns` and `part` / rate ns.
struct LineSpan {
  Nanos whole_ns = 0;
  int64_t part = 0;

  // 128 bits: a message's bits times 1e9 may need more than 64.
  static LineSpan of(int64_t bytes, int64_t rate_bps) {
    const auto scaled_bits = static_cast<__int128>(bytes) * 8'000'000'000;
    if (scaled_bits <= INT64_MAX) [[likely]] {
      const auto bits = static_cast<int64_t>(scaled_bits);
      return {bits / rate_bps, bits % rate_bps};
    }
    return {static_cast<Nanos>(scaled_bits / rate_bps), static_cast<int64_t>(scaled_bits % rate_bps)};
  }
  Nanos rounded_up_ns() const { return whole_ns + (part > 0 ? 1 : 0); }
};

class LineClock {
 public:
  // End of all accepted transmissions, rounded up.
  Nanos free_ns() const { return free_ns_; }

  // Send for this duration on a line of this rate, as soon as the line is free. Return when the last bit has left.
  Nanos take(const LineSpan& span, int64_t rate_bps, Nanos now) {
    // Branch-free: the choice is unpredictable.
    const int64_t beyond = span.part - (free_ns_ < now ? 0 : early_);
    const int64_t up = beyond > 0 ? 1 : 0;
    early_ = (beyond > 0 ? rate_bps : 0) - beyond;
    free_ns_ = std::max(free_ns_, now) + span.whole_ns + up;
    return free_ns_;
  }
  Nanos take(int64_t bytes, int64_t rate_bps, Nanos now) { return take(LineSpan::of(bytes, rate_bps), rate_bps, now); }

 private:
  Nanos free_ns_ = 0;
  int64_t early_ = 0;  // the last bit leaves `early_` / rate ns before `free_ns_`
};

}  // namespace etloop
