// The links of a flow-level run, and those that each queue pair takes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "plan/plan.h"
#include "virtual/fair_shares.h"

namespace etloop {

// The ways of a plan's connections, in their order: one per queue pair on the wire, one for any other connection. Way w is parts
// [way_offsets[w], way_offsets[w + 1]).
struct FlowNetwork {
  // Latency from the last bit sent to the last bit received, without store-and-forward; and nanoseconds per bit of a packet that
  // switches store.
  struct Delay {
    Nanos latency_ns;
    double store_ns_per_bit;
  };
  std::vector<int64_t> link_bps;
  std::vector<int64_t> way_offsets;
  std::vector<LinkShare> parts;
  std::vector<Delay> delays;
};

// Number of ways of a connection.
inline uint32_t ways_of(const PlannedConnection& c) { return c.path == Path::wire ? static_cast<uint32_t>(c.qp_count) : 1; }

}  // namespace etloop
