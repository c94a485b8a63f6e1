// The departure times of one queue pair's packets at a given rate. Times are worked out from the start of a busy period by
// exact division with remainder, so rounding does not add up: after any number of bytes the schedule is right to 1 ns.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace etloop {

class Pacer {
 public:
  // `catch_up_ns`: how much lateness of ours is made up for by sending faster; beyond it, time is lost for good. It bounds
  // what may leave at the speed of the port after a pause of the host: the rate times this.
  explicit Pacer(Nanos catch_up_ns) : catch_up_ns_(catch_up_ns) {}

  // 0: not paced.
  void set_rate(uint64_t rate_bps, Nanos now) {
    if (rate_bps == rate_bps_) return;
    // What is still to be waited for was counted in bits, which pass sooner or later at the new rate.
    if (rate_bps_ != 0 && rate_bps != 0) {
      const Nanos from_ns = std::min(next_ns_, now);
      const auto scaled_bits = static_cast<unsigned __int128>(next_ns_ - from_ns) * rate_bps_ + remainder_;
      const auto wait_ns = scaled_bits / rate_bps;
      next_ns_ = from_ns + static_cast<Nanos>(std::min<unsigned __int128>(wait_ns, kLongestWaitNs));
      remainder_ = static_cast<uint64_t>(scaled_bits % rate_bps);
    } else {
      remainder_ = 0;
    }
    rate_bps_ = rate_bps;
  }

  // Nothing was to be sent until now: the time that passed earns nothing.
  void begin_busy(Nanos now) {
    if (next_ns_ >= now) return;
    next_ns_ = now;
    remainder_ = 0;
  }

  // `ahead_ns`: so much too early will do.
  bool due(Nanos now, Nanos ahead_ns = 0) {
    if (next_ns_ > now + ahead_ns) return false;
    if (next_ns_ < now - catch_up_ns_) next_ns_ = now - catch_up_ns_;
    return true;
  }

  void sent(uint64_t wire_bytes) {
    if (rate_bps_ == 0) return;
    const uint64_t scaled_bits = wire_bytes * 8'000'000'000 + remainder_;
    next_ns_ += static_cast<Nanos>(scaled_bits / rate_bps_);
    remainder_ = scaled_bits % rate_bps_;
  }

  uint64_t rate_bps() const { return rate_bps_; }
  Nanos next_ns() const { return next_ns_; }

 private:
  static constexpr uint64_t kLongestWaitNs = 1'000'000'000'000'000'000;

  Nanos catch_up_ns_;
  uint64_t rate_bps_ = 0;
  uint64_t remainder_ = 0;  // of the division, in bits times 10^9
  Nanos next_ns_ = 0;
};

}  // namespace etloop
