// What a switch is, as plain values: ports, buffer, maps from DSCP to queue, marking, pausing, scheduling, routes.
// Terms follow SAI (opencompute/SAI:inc): traffic class, priority group (ingress accounting), queue (egress), pool.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"
#include "switch/flow_hash.h"
#include "switch/usid_table.h"

namespace etloop {

inline constexpr size_t kPriorities = 8;  // traffic classes, queues and priority groups of a port alike

struct SwitchPortConfig {
  int64_t rate_bps = 0;
  Nanos propagation_ns = 0;  // of the link to whatever is at its other end
  bool to_host = false;      // a host is at its other end, and no switch
  uint16_t weight = 1;       // its share of what has several ways
};

// Ingress accounting of one priority group, alike on every port.
struct PriorityGroupConfig {
  bool lossless = false;
  int64_t reserved_bytes = 0;
  int8_t alpha_log2 = 0;          // may use 2^alpha_log2 times the free shared buffer
  int64_t headroom_bytes = 0;     // beyond its threshold, for what arrives after xoff; lossless only
  int64_t resume_offset_bytes = 0;  // xon when its shared use is this far below the threshold
};

struct QueueConfig {
  bool strict = false;    // strict queues go first, the highest number first
  uint32_t weight = 1;    // of deficit round robin among the others
  int8_t alpha_log2 = 0;  // egress limit: 2^alpha_log2 times the free shared buffer; lossless traffic is not limited here
  int64_t reserved_bytes = 0;
  bool ecn = false;
  bool mark_at_dequeue = true;
  int64_t kmin_bytes = 0;
  int64_t kmax_bytes = 0;
  uint32_t pmax_per_million = 0;
  bool trims = true;  // what it refuses may be trimmed, where the switch trims
};

enum class LoadBalancing : uint8_t {
  ecmp,
  spray,
  flowlet,
  adaptive,          // packet by packet to the way with least to send
  adaptive_flowlet,  // the same for the first of a flowlet, which the others follow
  structured,        // by bits of the UDP source port: consecutive values of these take consecutive ways
};
enum class WatchdogAction : uint8_t { drop, forward };

// A disturbance of the switch's own: packets that come in by `in_port` and go out by `out_port` (-1: any) are dropped or
// corrupted, every `every`-th of them or with a probability, between two times.
struct SwitchFault {
  int32_t in_port = -1;
  int32_t out_port = -1;
  uint32_t per_million = 0;
  uint32_t every = 0;
  Nanos from_ns = 0;
  Nanos until_ns = kNever;
  bool corrupt = false;
};

// How one of several equally short ways is chosen.
struct WayRules {
  LoadBalancing balancing = LoadBalancing::ecmp;
  Nanos flowlet_gap_ns = 0;
  HashFields hash_fields = kFiveTuple;
  uint8_t entropy_shift = 0;  // of `structured`: the bits of the UDP source port that name a way begin here
  uint8_t entropy_bits = 8;   // and are so many
};

// Packets that are refused and cut instead of being dropped (SAI_SWITCH_ATTR_PACKET_TRIM_*).
struct SwitchTrimming {
  int64_t frame_bytes = 0;  // what is left of a frame, its check sequence included; 0: nothing is trimmed
  uint8_t dscp = 0;         // of what is left
  int16_t last_hop_dscp = -1;  // the same at ports with a host behind them; -1: as everywhere
  int16_t queue = -1;          // that it waits in; -1: that of its DSCP
  uint64_t exempt_dscps = 0;   // whose packets are dropped as ever, as bits

  uint8_t dscp_at(bool to_host) const { return to_host && last_hop_dscp >= 0 ? static_cast<uint8_t>(last_hop_dscp) : dscp; }
  bool is_mark(uint8_t of_packet) const { return of_packet == dscp || of_packet == last_hop_dscp; }
};

struct SwitchConfig {
  std::string name;
  std::vector<SwitchPortConfig> ports;
  int64_t buffer_bytes = 0;  // all of it: reserves, headroom and what is shared
  int64_t headroom_pool_bytes = -1;  // that all groups of all ports take theirs from; -1: each has its own
  std::array<uint8_t, 64> dscp_to_class{};
  std::array<uint8_t, kPriorities> class_to_queue{};
  std::array<uint8_t, kPriorities> class_to_group{};
  std::array<uint8_t, kPriorities> group_to_priority{};  // PFC priority that pauses a group's senders
  std::array<uint8_t, kPriorities> priority_to_queue{};  // queue that a received PFC priority pauses
  std::array<PriorityGroupConfig, kPriorities> groups{};
  std::array<QueueConfig, kPriorities> queues{};
  bool pfc = false;
  uint16_t pause_quanta = 65535;
  Nanos watchdog_detect_ns = 0;  // 0: none. A queue paused for so long with something to send is in a storm
  Nanos watchdog_restore_ns = 0;
  WatchdogAction watchdog_action = WatchdogAction::drop;
  Nanos latency_ns = 0;  // from the last bit in to the queue
  WayRules ways;
  UsidTable usids;
  SwitchTrimming trimming;
  uint64_t seed = 1;  // of the hash, of marking and of random faults
  std::vector<SwitchFault> faults;
  // routes[destination]: ports that lead there; empty: unreachable, dropped.
  std::vector<std::vector<uint16_t>> routes;
};

// Of the buffer what is not shared: the reserves of all ports, and their headroom or the pool for it.
int64_t set_aside_bytes(const SwitchConfig& config);

// Empty if the configuration can be run; else what cannot be, and where.
std::string validate(const SwitchConfig& config);

}  // namespace etloop
