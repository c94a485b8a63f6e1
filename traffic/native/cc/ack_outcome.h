// Input of congestion control from an answer.
#pragma once

#include <cstdint>

#include "base/time.h"

namespace etloop {

// The effect of an acknowledgement, NAK or response.
struct AckOutcome {
  uint32_t packets = 0;   // newly acknowledged
  uint64_t bytes = 0;     // payload newly acknowledged
  Nanos rtt_ns = -1;      // -1: no sample; never of a retransmitted packet
  bool ecn_echo = false;  // the peer saw Congestion Experienced since its last acknowledgement
  bool nak = false;       // the peer requested a retransmission
  uint32_t lost_packets = 0;  // number of lost packets, if known: an algorithm is notified of each
};

}  // namespace etloop
