// What one agent's engine is given: programs, step tables and connections, as plain values. Nothing here changes during a run.
// The columns of contract/model/assignment.py become these structs in bind/plan.cpp; `validate` is the door they pass.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/ip_address.h"
#include "base/time.h"
#include "plan/congestion_plan.h"
#include "plan/fault_rules.h"
#include "plan/schedule.h"
#include "wire/packet_run.h"
#include "wire/usid.h"

namespace etloop {

enum class OpKind : uint8_t { delay = 0, collective = 1, send = 2, recv = 3 };
enum class Path : uint8_t { wire = 0, scale_up = 1, hairpin = 2 };

// Schedule s has the tables [table_offsets[s], table_offsets[s + 1]) of some of its positions, in rising order; table t
// has the lanes [lane_offsets[t], lane_offsets[t + 1]).
struct ScheduleSet {
  std::vector<Cutting> cutting;
  std::vector<int32_t> sizes;            // positions of a schedule, with and without a table here
  std::vector<int32_t> table_offsets;    // one more than schedules
  std::vector<int32_t> table_positions;
  std::vector<int32_t> lane_offsets;     // one more than tables
  std::vector<Lane> lanes;
  std::vector<Entry> entries;
  // Lanes (numbers within their table) that wait for lane l somewhere: [dependent_offsets[l], dependent_offsets[l + 1]).
  // Empty if no lane of the set waits for another.
  std::vector<int32_t> dependent_offsets;
  std::vector<int32_t> dependents;
  // Of tables with several batches, which follow each other on every channel by itself: for each lane the next one of its
  // channel (-1: none), and for each table how many channels it has. A table of one batch has 0; both empty: all have.
  std::vector<int32_t> next_on_channel;
  std::vector<int32_t> batch_channels;

  // The table of a position, -1 if it is not here.
  int32_t table(int32_t schedule, int32_t position) const;
};

// Ops in topological order. Successors are derived from the dependencies by `finish_program`.
struct Program {
  std::vector<OpKind> kind;
  std::vector<int32_t> schedule;
  std::vector<int32_t> slot;
  std::vector<int32_t> sequence;
  std::vector<int64_t> message_bytes;
  std::vector<int64_t> delay_ns;
  std::vector<int64_t> dep_offsets;
  std::vector<int32_t> deps;

  std::vector<int64_t> successor_offsets;
  std::vector<int32_t> successors;
  int64_t network_ops = 0;

  size_t size() const { return kind.size(); }
  uint32_t dep_count(size_t op) const {
    return static_cast<uint32_t>(dep_offsets[op + 1] - dep_offsets[op]);
  }
};

struct PlannedRank {
  int32_t rank;
  int32_t program;
  int32_t port;
  int32_t address;
  std::vector<int32_t> communicators;
  std::vector<int32_t> peers;
  bool background = false;     // goes through its program once, and the run does not wait for it
  int16_t traffic_class = -1;  // of its packets; -1: that of the transport
};

struct PlannedConnection {
  int32_t communicator;  // -1: point-to-point
  int32_t channel;
  int32_t src_rank;
  int32_t dst_rank;
  Path path;
  IpAddress src_ip;  // of one family; all zero where the path is not the wire
  IpAddress dst_ip;
  int32_t first_qp;
  int32_t qp_count;
};

struct PlannedQp {
  uint32_t src_qpn;
  uint32_t dst_qpn;
  uint16_t src_udp_port;
  uint16_t dst_udp_port;
};

struct PlannedPort {
  std::string name;
  std::vector<IpAddress> addresses;
  uint16_t udp_port;
  int64_t link_bps;
  uint32_t qpn_base;
  uint32_t qpn_count;
  uint32_t tag_bytes = 0;  // of the VLAN tag that the port puts on its frames
  // So many ports of the plan are queues of one: they share its link and its queue pair numbers.
  uint32_t queues = 1;
  // Which of them this is, where they share all addresses and deal the queue pairs of every rank among themselves
  // (queue_deal.h); they follow each other in the plan. -1: every address, and all that its rank has, is on one port.
  int32_t queue = -1;
  // So many ports of the plan are the planes of one card (planes.h); they follow each other, and the first has what the card's
  // ranks do. 1: a port by itself.
  uint32_t planes = 1;
  int32_t plane = 0;  // which of them this is
  std::vector<PauseRule> pauses;
  std::vector<usid::Route> segments;  // by which packets to some addresses are led
  usid::End segment_end;              // whose outer headers are taken off
  std::string device;      // the RDMA device that carries the transport; empty: we do
  int32_t gid_index = -1;  // of the device; -1: found by address
  size_t transport = 0;    // which of the run's transports it speaks (`plan_of`)

  // What its packets have on a link beside Ethernet, IP and UDP.
  uint32_t around_bytes() const {
    return tag_bytes + static_cast<uint32_t>(segments.empty() ? 0 : usid::kOuterHeaderBytes);
  }
};

// What a minimum time lies between congestion notifications of.
enum class CnpScope : uint8_t { queue_pair = 0, port = 1 };

// What carries messages between queue pairs.
enum class TransportKind : uint8_t { roce = 0, mrc = 1, uet = 2 };

constexpr PacketTrailer trailer_of(TransportKind kind) {
  return kind == TransportKind::uet ? PacketTrailer::none : PacketTrailer::icrc;
}

// How a sender draws the entropy value of its next packet (traffic/native/multipath/entropy.h).
enum class EntropyChoice : uint8_t { rotation = 0, oblivious = 1, recycled = 2, penalties = 3 };

// Of UET, in which order a receiver takes packets: as they come (RUD), or as they were numbered alone (ROD).
enum class DeliveryOrder : uint8_t { any = 0, sent = 1 };

// Of UET: credits that receivers grant to their senders (RCCC).
struct CreditParams {
  bool granted = false;
  bool alone = false;            // no control by the sender beside them: ACKs tell of credit instead of its state
  uint32_t window_percent = 150;  // of the bandwidth-delay product: what a sender begins with, and keeps at most
  uint32_t quantum_packets = 4;   // of one grant
  uint32_t share_per_million = 1'000'000;  // of the link's rate that is granted
};

// What carries messages, and how the packets of its queue pairs find their paths where it has many.
struct MultipathParams {
  TransportKind kind = TransportKind::roce;
  EntropyChoice choice = EntropyChoice::rotation;
  uint32_t entropy_values = 128;  // of a queue pair
  uint32_t least_active = 8;      // fewer than these are never left by withdrawing some
  uint32_t sack_bytes = 16 << 10;  // so much arrives between two SACKs that nothing else causes
  Nanos close_after_ns = 0;        // of UET: so long a context rests before it is closed; 0: for ever
  DeliveryOrder order = DeliveryOrder::any;
  bool sends = false;  // of UET: messages are SENDs to receives that a grant named, else WRITEs to its address
  CreditParams credit;
};
inline constexpr uint32_t kMostEntropyValues = 1024;
inline constexpr uint32_t kMostSprayedWindow = 1024;

// What is said of a packet that arrives without its payload.
enum class TrimAnswer : uint8_t { none = 0, nak = 1, selective = 2 };

// Packets that a switch cut down.
struct TrimParams {
  uint64_t dscps = 0;  // bit i: DSCP i is theirs
  uint64_t last_hop_dscps = 0;  // those of them that the last switch gives
  TrimAnswer answer = TrimAnswer::none;

  bool is_last_hop(uint8_t traffic_class) const { return (last_hop_dscps >> (traffic_class >> 2) & 1) != 0; }
};

struct TransportParams {
  uint32_t path_mtu = 4096;
  uint8_t traffic_class = 0;
  uint32_t window_packets = 0;  // 0: as the receiver's buffer allows
  uint32_t ack_every = 256;
  Nanos timeout_ns = 0;
  uint32_t retry_limit = 7;
  uint32_t initial_psn = 0;
  bool split_data_on_qps = false;
  bool adaptive_timeout = true;
  Nanos timeout_floor_ns = 0;  // of the adaptive timeout
  uint32_t rnr_retry = 7;      // 7: for ever
  uint8_t min_rnr_timer = 12;  // the code that this end's receiver-not-ready NAKs carry
  uint32_t max_rd_atomic = 16;
  bool selective_repeat = false;
  Nanos tail_probe_ns = -1;  // least wait before an end that is silent is probed; -1: by the timeout's floor, 0: never
  bool out_of_order_accept = false;
  TrimParams trims;
  uint32_t reorder_packets = 64;  // so many may overtake a packet before it counts as lost; if overtaking is accepted
  Nanos cnp_interval_ns = 4'000;  // -1: none are sent
  CnpScope cnp_scope = CnpScope::queue_pair;
  ClassMarks cnp{48 << 2, -1};
  ClassMarks ack;    // acknowledgements and NAKs
  ClassMarks grant;  // clear-to-send writes
  std::vector<FaultRule> faults;
  MultipathParams multipath;
};

struct EnginePlan {
  int32_t iterations = 1;
  std::vector<PlannedPort> ports;
  TransportParams transport;
  CongestionParams congestion;
  SeriesParams series;
  int64_t scale_up_bps = 0;
  Nanos scale_up_latency_ns = 0;
  ScheduleSet schedules;
  std::vector<Program> programs;
  std::vector<PlannedRank> ranks;
  std::vector<int32_t> communicator_offsets;
  std::vector<int32_t> communicator_members;
  std::vector<PlannedConnection> connections;
  std::vector<PlannedQp> qps;
  // Of cards, here and at the other ends: by an address of their first plane, what stands for it on each plane in order.
  std::map<IpAddress, std::vector<IpAddress>> plane_addresses;
  // Which of the run's transports `transport`, `congestion` and `series` are.
  size_t transport_number = 0;
  // Of the first: the same plan with each further transport, from number 1 on.
  std::vector<std::shared_ptr<const EnginePlan>> others;
};

// The plan with the transport that a port speaks: what its core is given. Requires a plan that passed `validate`.
inline const EnginePlan& plan_of(const EnginePlan& first, size_t port) {
  const size_t number = first.ports[port].transport;
  return number == 0 ? first : *first.others[number - 1];
}

// Of the packets of a rank.
inline uint8_t traffic_class_of(const EnginePlan& plan, const PlannedRank& rank) {
  return rank.traffic_class < 0 ? plan.transport.traffic_class : static_cast<uint8_t>(rank.traffic_class);
}

// Derives successors and counts; requires a program that passed `validate`'s range checks.
void finish_program(Program& program);

// Derives in which order the lanes of a channel follow each other; requires schedules that passed their range checks.
void order_batches(ScheduleSet& set);

// Empty if every index, size and enumeration of the plan is in range and consistent; else what is not, and where.
std::string validate(const EnginePlan& plan);

}  // namespace etloop
