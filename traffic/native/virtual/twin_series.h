// Time series of a network of switches: what every used queue held, marked, dropped and was paused for, at regular times. Pure.
//
// CoS i of a port is its queue i, PFC priority i and priority group i. Rows exist for used lanes only; when there are too many,
// every second sample is dropped and the interval doubles, so that a series of any length fits.
#pragma once

#include <cstdint>
#include <vector>

#include "switch/soft_fabric.h"

namespace etloop {

struct LaneSample {
  int64_t time_ns;
  int64_t queued_bytes;
  int64_t group_bytes;     // ingress bytes in the lane's priority group
  int64_t headroom_bytes;  // of those, beyond the threshold
  // Counters since the begin:
  int64_t tx_packets;
  int64_t tx_bytes;
  int64_t marked_packets;
  int64_t dropped_packets;  // for lack of room, by queue or group
  int64_t trimmed_packets;
  int64_t pfc_rx;
  int64_t pfc_tx;
  int64_t paused_ns;
  int32_t switch_index;
  uint16_t port;
  uint16_t lane;
};
static_assert(sizeof(LaneSample) == 104);

class TwinSeries {
 public:
  // `interval_ns` 0: no series.
  TwinSeries(const SoftFabric& fabric, const FabricConfig& config, Nanos interval_ns, size_t most_rows);

  // Time of the next sample; kNever without a series.
  Nanos due_ns() const { return due_ns_; }
  // Take a sample; call before any event at or after `due_ns`.
  void sample();

  // Drop all rows so far.
  void begin_again() { rows_.clear(); }

  Nanos interval_ns() const { return interval_ns_; }
  const std::vector<LaneSample>& rows() const { return rows_; }

 private:
  void thin_out();

  const SoftFabric& fabric_;
  const FabricConfig& config_;
  Nanos interval_ns_;
  size_t most_rows_;
  Nanos due_ns_;
  std::vector<LaneSample> rows_;
};

}  // namespace etloop
