// One end of an MRC queue pair, without I/O: what asks and what is asked, side by side. Its owner posts messages, asks for
// packets while there are any, hands in what arrives, and pops what is over.
#pragma once

#include <memory_resource>

#include "mrc/requester.h"
#include "mrc/responder.h"

namespace etloop::mrc {

struct Endpoint {
  Endpoint(uint32_t remote_qpn, uint16_t first_port, uint32_t pattern_rkey, const TransportParams& params, FlowRecord& counters,
           std::pmr::memory_resource& memory)
      : requester(remote_qpn, first_port, params, counters, memory), responder(remote_qpn, params, pattern_rkey, counters) {}

  Requester requester;
  Responder responder;
  bool queued = false;          // in its owner's transmit queue
  bool answers_queued = false;  // likewise of answers and probes
  Nanos timer_due_ns = kNever;  // of its owner's earliest timer event
};

}  // namespace etloop::mrc
