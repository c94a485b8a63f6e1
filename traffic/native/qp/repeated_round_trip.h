// Round trip of a packet that was retransmitted while no other packet was in flight, with selective repeat. At the minimum rate,
// losses are repaired packet by packet, and congestion control would get no round trip until all are repaired. Only certain
// losses are measured: an answer to any other packet may be to an earlier transmission. Timeouts do not use this value (Karn).
// Pure.
#pragma once

#include <cstdint>

#include "base/time.h"
#include "wire/wire.h"

namespace etloop {

class RepeatedRoundTrip {
 public:
  // A lost packet that requests an answer was retransmitted alone. Forget any earlier one.
  void note_sent(uint32_t psn, Nanos now) {
    psn_ = psn;
    sent_ns_ = now;
    is_pending_ = true;
  }
  // `count` packets from `psn` arrived: return the round trip; -1: the packet is not among them.
  Nanos arrived(uint32_t psn, uint32_t count, Nanos now) {
    const int32_t offset = wire::psn_distance(psn_, psn);
    if (!is_pending_ || offset < 0 || offset >= static_cast<int32_t>(count)) return -1;
    is_pending_ = false;
    return now - sent_ns_;
  }

 private:
  uint32_t psn_ = 0;
  bool is_pending_ = false;
  Nanos sent_ns_ = 0;
};

}  // namespace etloop
