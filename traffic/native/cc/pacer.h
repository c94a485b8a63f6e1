// Departure times of one queue pair at a given rate. Computed from the start of a busy period by exact division with remainder:
// rounding errors do not add up, and the schedule is exact to 1 ns.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace etloop {

class Pacer {
 public:
  // `catch_up_ns`: lateness that is made up by sending faster; beyond it, the time is lost. It bounds the burst at port speed
  // after a pause of the host: rate times this.
  explicit Pacer(Nanos catch_up_ns) : catch_up_ns_(catch_up_ns) {}

  // 0: not paced.
  void set_rate(uint64_t rate_bps, Nanos now) {
    if (rate_bps == rate_bps_) return;
    // Convert the remaining wait, which is a number of bits, to the new rate.
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

  // The queue pair was idle until now: idle time earns no bytes.
  void begin_busy(Nanos now) {
    if (next_ns_ >= now) return;
    next_ns_ = now;
    remainder_ = 0;
  }

  // `ahead_ns`: accepted earliness.
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
  uint64_t remainder_ = 0;  // remainder of the division, in bits times 10^9
  Nanos next_ns_ = 0;
};

}  // namespace etloop
