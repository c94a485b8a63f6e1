// The input of one agent's engine: programs, step tables and connections, as plain values. None of them changes during a run.
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
#include "plan/transport_settings.h"
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
  bool sends = false;          // its messages are SENDs with immediate, not WRITEs
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
  std::vector<usid::Route> segments;  // routes of packets to some addresses
  usid::End segment_end;              // whose outer headers are taken off
  std::string device;      // the RDMA device that carries the transport; empty: we do
  int32_t gid_index = -1;  // of the device; -1: found by address
  size_t transport = 0;    // which of the run's transports it speaks (`plan_of`)

  // Bytes of its packets on a link in addition to Ethernet, IP and UDP.
  uint32_t around_bytes() const {
    return tag_bytes + static_cast<uint32_t>(segments.empty() ? 0 : usid::kOuterHeaderBytes);
  }
};

constexpr PacketTrailer trailer_of(TransportKind kind) {
  return kind == TransportKind::uet ? PacketTrailer::none : PacketTrailer::icrc;
}

inline constexpr uint32_t kMostEntropyValues = 1024;
inline constexpr uint32_t kMostSprayedWindow = 1024;

// Return the traffic class and VLAN priority of a kind of packet.
template <typename Marks>
constexpr ClassMarks marks_of(const Marks& marks) {
  const auto dscp = static_cast<int32_t>(marks.dscp);
  const auto traffic_class = static_cast<int16_t>(dscp << 2 | static_cast<int32_t>(marks.ecn));
  return {dscp < 0 ? kFlowClass : traffic_class, static_cast<int8_t>(marks.vlan_priority)};
}

// Return the marks of an end's acknowledgements. One that sends data acknowledges grants alone.
inline ClassMarks answer_marks(const TransportSettings& transport, bool sends_data) {
  return marks_of(sends_data && transport.own_packets_apart ? transport.clear_to_send : transport.ack);
}

struct EnginePlan {
  int32_t iterations = 1;
  std::vector<PlannedPort> ports;
  TransportSettings transport;
  std::vector<FaultRule> faults;
  CongestionParams congestion;
  SeriesSettings series;
  int64_t scale_up_bps = 0;
  Nanos scale_up_latency_ns = 0;
  ScheduleSet schedules;
  std::vector<Program> programs;
  std::vector<PlannedRank> ranks;
  std::vector<int32_t> communicator_offsets;
  std::vector<int32_t> communicator_members;
  std::vector<PlannedConnection> connections;
  std::vector<PlannedQp> qps;
  // Addresses of cards, here and at the other ends: an address of the first plane -> the card's address on each plane in order.
  std::map<IpAddress, std::vector<IpAddress>> plane_addresses;
  // Which of the run's transports `transport`, `faults`, `congestion` and `series` are.
  size_t transport_number = 0;
  // In the plan of transport 0: the same plan with each further transport, from number 1 on.
  std::vector<std::shared_ptr<const EnginePlan>> others;
};

// The plan with the transport that a port speaks: what its core is given. Requires a plan that passed `validate`.
inline const EnginePlan& plan_of(const EnginePlan& first, size_t port) {
  const size_t number = first.ports[port].transport;
  return number == 0 ? first : *first.others[number - 1];
}

// Return the DSCP and ECN of data as one byte.
inline uint8_t traffic_class_of(const TransportSettings& transport) {
  return static_cast<uint8_t>(transport.dscp << 2 | transport.ecn);
}

// Return the DSCP and ECN of a rank's data as one byte.
inline uint8_t traffic_class_of(const EnginePlan& plan, const PlannedRank& rank) {
  return rank.traffic_class < 0 ? traffic_class_of(plan.transport) : static_cast<uint8_t>(rank.traffic_class);
}

// Derives successors and counts; requires a program that passed `validate`'s range checks.
void finish_program(Program& program);

// Derives in which order the lanes of a channel follow each other; requires schedules that passed their range checks.
void order_batches(ScheduleSet& set);

// Empty if every index, size and enumeration of the plan is in range and consistent; else what is not, and where.
std::string validate(const EnginePlan& plan);

}  // namespace etloop
