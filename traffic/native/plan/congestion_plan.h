// The congestion control of a run as the engine is given it: which algorithm with which values, and what is written down.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

struct etloop_cc_algorithm;  // cc/etloop_cc.h

namespace etloop {

// What all queue pairs of a run have in common. Outlives every FlowControl.
struct CongestionParams {
  const etloop_cc_algorithm* algorithm = nullptr;  // nullptr: no control at all
  std::vector<double> parameters;
  uint32_t burst_bytes = 64 << 10;    // most that leaves back to back below the line rate; at least a packet does
  int64_t catch_up_ns = 1'000'000;    // so much lateness of the host is made up for
  std::shared_ptr<const void> library;  // the plugin that the table is in
};

// Rates and windows written down every so often; 0: not at all.
struct SeriesParams {
  int64_t interval_ns = 0;
  uint32_t queue_pairs = 0;  // so many of those that send data at a port, in the order of the plan; 0: all
};

}  // namespace etloop
