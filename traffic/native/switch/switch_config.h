// The configuration of a switch: ports, buffer, maps from DSCP to queue, marking, pausing, scheduling, routes. Terms follow SAI
// (opencompute/SAI:inc): traffic class, priority group (ingress accounting), queue (egress), pool.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"
#include "switch/flow_hash.h"
#include "switch/usid_table.h"

namespace etloop {

inline constexpr size_t kPriorities = 8;  // number of traffic classes, queues and priority groups per port

struct SwitchPortConfig {
  int64_t rate_bps = 0;
  Nanos propagation_ns = 0;  // propagation delay of its link
  bool to_host = false;      // the other end is a host
  uint16_t weight = 1;       // its share of traffic with several ways
  bool honours_pause = true;   // false: a fault, it sends on while it is paused
  uint16_t rules = 0;          // 0: the rules of the switch; i: `port_rules[i - 1]`
};

// Ingress accounting of a priority group.
struct PriorityGroupConfig {
  bool lossless = false;
  int64_t reserved_bytes = 0;
  int8_t alpha_log2 = 0;          // threshold: 2^alpha_log2 times the free shared buffer
  int64_t headroom_bytes = 0;     // for packets that arrive after xoff; lossless only
  int64_t resume_offset_bytes = 0;  // xon when its shared use is this far below the threshold
};

struct QueueConfig {
  bool strict = false;    // strict queues first, highest number first
  uint32_t weight = 1;    // for deficit round robin among the others
  int8_t alpha_log2 = 0;  // egress limit: 2^alpha_log2 times the free shared buffer; lossless traffic is not limited here
  int64_t reserved_bytes = 0;
  bool ecn = false;
  bool mark_at_dequeue = true;
  int64_t kmin_bytes = 0;
  int64_t kmax_bytes = 0;
  uint32_t pmax_per_million = 0;
  bool trims = true;  // packets it rejects may be trimmed, if the switch trims
};

// Settings that ports may differ in: those of groups apply to packets that arrive at the port, those of queues to packets that
// leave by it.
struct PortRules {
  std::array<PriorityGroupConfig, kPriorities> groups{};
  std::array<QueueConfig, kPriorities> queues{};
  bool pfc = false;
};

enum class LoadBalancing : uint8_t {
  ecmp,
  spray,
  flowlet,
  adaptive,          // per packet, the way with the shortest queue
  adaptive_flowlet,  // the same for the first packet of a flowlet
  structured,        // by bits of the UDP source port: consecutive values take consecutive ways
};
enum class WatchdogAction : uint8_t { drop, forward };

// A fault of the switch: packets from `in_port` to `out_port` (-1: any) are dropped or corrupted, every `every`-th or with a
// probability, between two times.
struct SwitchFault {
  int32_t in_port = -1;
  int32_t out_port = -1;
  uint32_t per_million = 0;
  uint32_t every = 0;
  Nanos from_ns = 0;
  Nanos until_ns = kNever;
  int64_t longer_than_bytes = 0;  // shorter frames pass
  bool corrupt = false;
};

// Choice among equally short ways.
struct WayRules {
  LoadBalancing balancing = LoadBalancing::ecmp;
  Nanos flowlet_gap_ns = 0;
  HashFields hash_fields = kFiveTuple;
  uint8_t entropy_shift = 0;  // for `structured`: first of the UDP source port's bits that select a way
  uint8_t entropy_bits = 8;   // and the number of bits
};

// Trimming of rejected packets instead of dropping them (SAI_SWITCH_ATTR_PACKET_TRIM_*).
struct SwitchTrimming {
  int64_t frame_bytes = 0;  // size of a trimmed frame with FCS; 0: no trimming
  uint8_t dscp = 0;         // DSCP of trimmed packets
  int16_t last_hop_dscp = -1;  // the same at ports to hosts; -1: `dscp`
  int16_t queue = -1;          // queue of trimmed packets; -1: that of the DSCP
  uint64_t exempt_dscps = 0;   // DSCPs that are never trimmed, as bits

  uint8_t dscp_at(bool to_host) const { return to_host && last_hop_dscp >= 0 ? static_cast<uint8_t>(last_hop_dscp) : dscp; }
  bool is_mark(uint8_t of_packet) const { return of_packet == dscp || of_packet == last_hop_dscp; }
};

// The rules of the base are those of all ports that have none of their own.
struct SwitchConfig : PortRules {
  std::string name;
  std::vector<SwitchPortConfig> ports;
  int64_t buffer_bytes = 0;  // whole buffer: reserves, headroom and shared part
  int64_t headroom_pool_bytes = -1;  // common headroom of all groups and ports; -1: each group has its own
  std::array<uint8_t, 64> dscp_to_class{};
  std::array<uint8_t, kPriorities> class_to_queue{};
  std::array<uint8_t, kPriorities> class_to_group{};
  std::array<uint8_t, kPriorities> group_to_priority{};  // PFC priority that pauses the senders of a group
  std::array<uint8_t, kPriorities> priority_to_queue{};  // queue paused by a received PFC priority
  std::vector<PortRules> port_rules;  // of ports that differ
  uint16_t pause_quanta = 65535;
  Nanos watchdog_detect_ns = 0;  // 0: off; a non-empty queue paused this long is in a storm
  Nanos watchdog_restore_ns = 0;
  WatchdogAction watchdog_action = WatchdogAction::drop;
  Nanos latency_ns = 0;  // from the last bit received to the queue
  WayRules ways;
  UsidTable usids;
  SwitchTrimming trimming;
  uint64_t seed = 1;        // of the hash, and of ways that are drawn at random
  uint64_t mark_seed = 1;   // of marks
  uint64_t fault_seed = 1;  // of random faults
  std::vector<SwitchFault> faults;
  // routes[destination]: ports towards it; empty: unreachable, dropped.
  std::vector<std::vector<uint16_t>> routes;

  const PortRules& rules_of(const SwitchPortConfig& port) const { return port.rules == 0 ? *this : port_rules[port.rules - 1]; }
};

// Buffer bytes that are not shared: the reserves of all ports, and their headroom or its pool.
int64_t set_aside_bytes(const SwitchConfig& config);

// Return why the configuration cannot be run, and where; empty if it can.
std::string validate(const SwitchConfig& config);

}  // namespace etloop
