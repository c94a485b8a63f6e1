// What a switch counts, named as SAI and SONiC's COUNTERS_DB name it. Snapshots are copies of these.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "switch/switch_config.h"

namespace etloop {

struct QueueCounters {
  int64_t packets = 0;  // SAI_QUEUE_STAT_PACKETS: sent
  int64_t bytes = 0;
  int64_t dropped_packets = 0;
  int64_t dropped_bytes = 0;
  int64_t ecn_marked_packets = 0;  // SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS
  int64_t ecn_marked_bytes = 0;
  int64_t trimmed_packets = 0;
  int64_t current_bytes = 0;  // SAI_QUEUE_STAT_CURR_OCCUPANCY_BYTES
  int64_t watermark_bytes = 0;
  int64_t paused_ns = 0;
  int64_t watchdog_storms = 0;
  int64_t watchdog_dropped_packets = 0;
};

struct GroupCounters {
  int64_t dropped_packets = 0;
  int64_t dropped_bytes = 0;
  int64_t current_bytes = 0;
  int64_t shared_watermark_bytes = 0;
  int64_t headroom_bytes = 0;  // in use
  int64_t headroom_watermark_bytes = 0;  // SAI_INGRESS_PRIORITY_GROUP_STAT_XOFF_ROOM_WATERMARK_BYTES
};

struct SwitchPortCounters {
  int64_t rx_packets = 0;
  int64_t rx_bytes = 0;
  int64_t tx_packets = 0;
  int64_t tx_bytes = 0;
  int64_t link_dropped_packets = 0;   // came or would have left while the link was down
  int64_t fault_dropped_packets = 0;  // dropped by a scripted or random fault
  int64_t fault_corrupted_packets = 0;  // that such a fault damaged, whatever became of them then
  int64_t no_route_packets = 0;
  std::array<int64_t, kPriorities> pfc_rx{};  // SAI_PORT_STAT_PFC_n_RX_PKTS
  std::array<int64_t, kPriorities> pfc_tx{};
  std::array<QueueCounters, kPriorities> queues{};
  std::array<GroupCounters, kPriorities> groups{};
};

struct SwitchCounters {
  std::vector<SwitchPortCounters> ports;
  int64_t pool_bytes = 0;            // in use, all of it
  int64_t pool_watermark_bytes = 0;  // SAI_BUFFER_POOL_STAT_WATERMARK_BYTES
};

}  // namespace etloop
