// How long a packet took that was sent again while nothing else was under way, with selective repeat. A rate that fell to its
// least one repairs what was lost packet by packet, and congestion control would hear of no round trip until all of it is
// there. Only what was surely lost is measured: an answer to anything else may be to an earlier transmission. Timeouts do not
// follow it (Karn). Pure.
#pragma once

#include <cstdint>

#include "base/time.h"
#include "wire/wire.h"

namespace etloop {

class RepeatedRoundTrip {
 public:
  // A packet that was lost and that asks for an answer was sent again, alone. Of an earlier one it is too late to hear.
  void note_sent(uint32_t psn, Nanos now) {
    psn_ = psn;
    sent_ns_ = now;
    waits_ = true;
  }
  // `count` packets from `psn` on arrived. -1: it is none of them.
  Nanos arrived(uint32_t psn, uint32_t count, Nanos now) {
    const int32_t offset = wire::psn_distance(psn_, psn);
    if (!waits_ || offset < 0 || offset >= static_cast<int32_t>(count)) return -1;
    waits_ = false;
    return now - sent_ns_;
  }

 private:
  uint32_t psn_ = 0;
  bool waits_ = false;
  Nanos sent_ns_ = 0;
};

}  // namespace etloop
