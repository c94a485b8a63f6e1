// What congestion control is told of an answer.
#pragma once

#include <cstdint>

#include "base/time.h"

namespace etloop {

// What an acknowledgement, NAK or response meant, for whoever controls the rate.
struct AckOutcome {
  uint32_t packets = 0;   // newly acknowledged
  uint64_t bytes = 0;     // payload newly acknowledged
  Nanos rtt_ns = -1;      // -1: no sample; never taken from what was sent twice
  bool ecn_echo = false;  // the peer saw Congestion Experienced since its last acknowledgement
  bool nak = false;       // something is to be sent again because the peer said so
  uint32_t lost_packets = 0;  // of that, how many, where it is known: an algorithm hears of each
};

}  // namespace etloop
