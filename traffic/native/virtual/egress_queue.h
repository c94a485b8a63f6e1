// An egress queue of a simulated switch: link rate, capacity, ECN marking by WRED, and telemetry. Pure and exact: the queue at an
// arrival consists of the packets that were admitted before and have not departed.
#pragma once

#include <cstdint>
#include <deque>

#include "base/line_clock.h"
#include "base/time.h"
#include "cc/etloop_cc.h"

namespace etloop {

struct EgressParams {
  int64_t link_bps = 0;
  int64_t capacity_bytes = 0;    // frames queued or being sent; excess is dropped
  int64_t mark_from_bytes = 0;   // Kmin
  int64_t mark_all_bytes = 0;    // Kmax; 0: no marking
  uint32_t mark_per_million = 0; // Pmax: marking probability just below Kmax
};

class EgressQueue {
 public:
  explicit EgressQueue(const EgressParams& params) : params_(params) {}

  struct Verdict {
    bool admitted = false;
    bool mark = false;  // Congestion Experienced, if the packet is ECN-capable
    Nanos departs_ns = 0;
    etloop_cc_hop hop{};  // as a switch writes it at departure
  };
  // A packet of `wire_bytes` arrives. `draw`: a uniform random number below 10^6.
  Verdict arrive(int64_t wire_bytes, Nanos now, uint32_t draw);
  int64_t queued_bytes(Nanos now);

  struct Counters {
    int64_t packets = 0;
    int64_t bytes = 0;
    int64_t marked = 0;
    int64_t dropped = 0;
    int64_t deepest_bytes = 0;
  };
  const Counters& counters() const { return counters_; }

 private:
  struct Waiting {
    Nanos departs_ns;
    int64_t bytes;
  };
  bool marks(int64_t queue_bytes, uint32_t draw) const;

  EgressParams params_;
  std::deque<Waiting> waiting_;
  int64_t queued_bytes_ = 0;
  LineClock line_;
  Counters counters_;
};

}  // namespace etloop
