#include "plan/plan.h"

#include <algorithm>
#include <bit>

#include "plan/planes.h"
#include "wire/wire.h"

namespace etloop {

namespace {

std::string at(const char* what, size_t index, const char* why) {
  return std::string(what) + "[" + std::to_string(index) + "]: " + why;
}

// Offsets start at 0, never fall, and end at `total`.
bool monotone(const std::vector<int32_t>& offsets, size_t total) {
  if (offsets.empty() || offsets.front() != 0) return false;
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] < offsets[i - 1]) return false;
  }
  return static_cast<size_t>(offsets.back()) == total;
}

// Checks that the engine needs in addition to the range checks of schedule_set_from (bind/schedule.cpp).
std::string validate_schedules(const ScheduleSet& set) {
  if (set.table_offsets.size() != set.cutting.size() + 1 || set.sizes.size() != set.cutting.size() ||
      set.lane_offsets.size() != set.table_positions.size() + 1) {
    return "schedules: table offsets do not fit the tables";
  }
  for (size_t s = 0; s < set.cutting.size(); ++s) {
    constexpr int32_t kMostSlots = 64;  // a lane keeps what arrived ahead of its turn in one word
    if (set.cutting[s].slots > kMostSlots) return at("schedules", s, "more than 64 slots");
  }
  for (size_t t = 0; t + 1 < set.lane_offsets.size(); ++t) {
    for (int32_t l = set.lane_offsets[t] + 1; l < set.lane_offsets[t + 1]; ++l) {
      const auto lane = static_cast<size_t>(l);
      if (set.lanes[lane].batch < set.lanes[lane - 1].batch) {
        return at("lanes", lane, "its batch comes before that of the lane in front of it");
      }
    }
  }
  return {};
}

std::string validate_program(const Program& program, size_t schedules) {
  const size_t n = program.size();
  if (program.schedule.size() != n || program.slot.size() != n || program.sequence.size() != n ||
      program.message_bytes.size() != n || program.delay_ns.size() != n || program.dep_offsets.size() != n + 1 ||
      program.dep_offsets.front() != 0 || program.dep_offsets.back() != static_cast<int64_t>(program.deps.size())) {
    return "columns differ in length";
  }
  for (size_t i = 0; i < n; ++i) {
    if (program.dep_offsets[i + 1] < program.dep_offsets[i]) return at("op", i, "dependency offsets fall");
    for (int64_t d = program.dep_offsets[i]; d < program.dep_offsets[i + 1]; ++d) {
      const int32_t dep = program.deps[static_cast<size_t>(d)];
      if (dep < 0 || static_cast<size_t>(dep) >= i) return at("op", i, "a dependency does not come before it");
    }
    switch (program.kind[i]) {
      case OpKind::delay:
        if (program.delay_ns[i] < 0) return at("op", i, "negative delay");
        break;
      case OpKind::collective:
      case OpKind::send:
      case OpKind::recv:
        if (program.schedule[i] < 0 || static_cast<size_t>(program.schedule[i]) >= schedules ||
            program.message_bytes[i] < 0 || program.message_bytes[i] > (1LL << 46) || program.sequence[i] < 0) {
          return at("op", i, "schedule, bytes or sequence is out of range");
        }
        break;
      default:
        return at("op", i, "unknown kind");
    }
  }
  return {};
}

std::string validate_rank(const EnginePlan& plan, const PlannedRank& rank) {
  if (rank.program < 0 || static_cast<size_t>(rank.program) >= plan.programs.size()) return "unknown program";
  if (rank.port < 0 || static_cast<size_t>(rank.port) >= plan.ports.size()) return "unknown port";
  if (plan.ports[static_cast<size_t>(rank.port)].plane != 0) return "it is on another plane of its card than the first";
  if (rank.address < 0 || static_cast<size_t>(rank.address) >= plan.ports[rank.port].addresses.size()) {
    return "unknown address";
  }
  const size_t communicators = plan.communicator_offsets.size() - 1;
  std::vector<int32_t> positions;  // of this rank, by slot
  for (const int32_t c : rank.communicators) {
    if (c < 0 || static_cast<size_t>(c) >= communicators) return "unknown communicator";
    const auto begin = plan.communicator_members.begin() + plan.communicator_offsets[c];
    const auto end = plan.communicator_members.begin() + plan.communicator_offsets[c + 1];
    const auto member = std::find(begin, end, rank.rank);
    if (member == end) return "not a member of its communicator";
    positions.push_back(static_cast<int32_t>(member - begin));
  }
  const Program& program = plan.programs[rank.program];
  for (size_t i = 0; i < program.size(); ++i) {
    if (program.kind[i] == OpKind::delay) continue;
    const auto& slots = program.kind[i] == OpKind::collective ? rank.communicators : rank.peers;
    if (program.slot[i] < 0 || static_cast<size_t>(program.slot[i]) >= slots.size()) {
      return at("op", i, "slot is out of range");
    }
    const int32_t s = program.schedule[i];
    int32_t wanted = 2;
    int32_t position = program.kind[i] == OpKind::recv ? 1 : 0;
    if (program.kind[i] == OpKind::collective) {
      const int32_t c = rank.communicators[program.slot[i]];
      wanted = plan.communicator_offsets[c + 1] - plan.communicator_offsets[c];
      position = positions[static_cast<size_t>(program.slot[i])];
    }
    if (plan.schedules.sizes[static_cast<size_t>(s)] != wanted) return at("op", i, "its schedule is for another group size");
    if (plan.schedules.table(s, position) < 0) return at("op", i, "its schedule has no table for this rank");
  }
  return {};
}

// Queues that share addresses follow each other, with equal values of all that they share.
std::string validate_queues(const EnginePlan& plan, size_t index) {
  const PlannedPort& port = plan.ports[index];
  if (port.queue < 0) return {};
  if (index > INT16_MAX) return "it is one of more than 32767 ports whose queues share addresses";
  const auto queue = static_cast<size_t>(port.queue);
  if (queue >= port.queues || index < queue || index - queue + port.queues > plan.ports.size()) {
    return "its queue is out of range";
  }
  const PlannedPort& first = plan.ports[index - queue];
  if (first.queue != 0 || first.queues != port.queues || first.qpn_base != port.qpn_base ||
      first.qpn_count != port.qpn_count || first.addresses != port.addresses || first.transport != port.transport) {
    return "it is not a queue of the port that it follows";
  }
  if (port.transport == plan.transport_number && plan.transport.kind == TransportKind::uet) {
    return "its queues share an address, which UET cannot: its contexts are not queue pairs; write queues: 1";
  }
  return {};
}

// Planes of a card follow each other and are alike, and packets are those of a transport that sprays over them.
std::string validate_planes(const EnginePlan& plan, size_t index) {
  const PlannedPort& port = plan.ports[index];
  if (port.planes == 1 && port.plane == 0) return {};
  const auto plane = static_cast<size_t>(port.plane);
  if (port.plane < 0 || plane >= port.planes || index < plane || index - plane + port.planes > plan.ports.size()) {
    return "its plane is out of range";
  }
  if (!std::has_single_bit(port.planes) || port.planes > kMostPlanes) return "a card has 2, 4 or 8 planes";
  const PlannedPort& first = plan.ports[index - plane];
  if (first.plane != 0 || first.planes != port.planes || first.addresses.size() != port.addresses.size() ||
      first.link_bps != port.link_bps || first.udp_port != port.udp_port || first.transport != port.transport) {
    return "it is not a plane of the card that it follows";
  }
  if (port.transport == plan.transport_number) {
    const MultipathSettings& paths = plan.transport.multipath;
    if (plan.transport.kind == TransportKind::roce) return "only MRC and UET send over several planes of a card";
    const bool sprays = paths.uet.order == DeliveryOrder::any;
    if (sprays && paths.entropy_values % port.planes != 0) return "entropy values are not as many for every plane";
  }
  if (port.queue >= 0 || port.queues != 1) return "a card of several planes has no queues";
  if (!port.segments.empty()) return "SRv6 does not route packets over several planes of a card";
  for (size_t a = 0; a < first.addresses.size(); ++a) {
    const auto known = plan.plane_addresses.find(first.addresses[a]);
    if (known == plan.plane_addresses.end() || known->second.size() != port.planes ||
        known->second[plane] != port.addresses[a]) {
      return "its addresses are not those of its plane";
    }
  }
  return {};
}

// Check what the bounds of single settings leave open.
std::string validate_transport(const TransportSettings& transport) {
  if (auto wrong = out_of_bounds(transport, "transport"); !wrong.empty()) return wrong;
  if (!std::has_single_bit(transport.path_mtu_bytes)) {
    return "transport.path_mtu_bytes: " + std::to_string(transport.path_mtu_bytes) + " is not 256, 512, 1024, 2048 or 4096";
  }
  if (transport.ack_every_packets == 0) return "transport.ack_every_packets: needs 1 or more; got 0";
  const RecoverySettings& recovery = transport.recovery;
  constexpr uint32_t kMostSelective = 256;  // packets that a selective NAK can name
  if (recovery.selective_repeat && transport.window_packets > kMostSelective) {
    return "transport.window_packets: selective repeat needs 256 or fewer; got " + std::to_string(transport.window_packets);
  }
  const TrimAnswer answer = recovery.trimming.answer;
  if (answer != TrimAnswer::none && (answer == TrimAnswer::selective) != recovery.selective_repeat) {
    return "transport.recovery.trimming.answer: it does not fit how packets are sent again";
  }
  const UetSettings& uet = transport.multipath.uet;
  const bool in_order = uet.order != DeliveryOrder::any;
  if (transport.kind != TransportKind::uet && (in_order || uet.sends || uet.credit.granted)) {
    return "transport.multipath.uet: order, sends and credits need kind uet";
  }
  if (in_order && transport.multipath.entropy_values != 1) {
    return "transport.multipath.entropy_values: ordered delivery needs 1; got " +
           std::to_string(transport.multipath.entropy_values);
  }
  if (transport.kind != TransportKind::roce && transport.window_packets > kMostSprayedWindow) {
    return "transport.window_packets: MRC and UET need " + std::to_string(kMostSprayedWindow) + " or fewer; got " +
           std::to_string(transport.window_packets);
  }
  return {};
}

std::string validate_faults(const EnginePlan& plan) {
  const bool sprays = plan.transport.kind != TransportKind::roce;
  for (size_t i = 0; i < plan.faults.size(); ++i) {
    const FaultRule& rule = plan.faults[i];
    const bool unasked = rule.action == FaultAction::send_nak || rule.action == FaultAction::send_rnr ||
                         rule.action == FaultAction::send_cnp;
    if (sprays && unasked) return at("transport.faults", i, "MRC and UET have no unsolicited NAKs and CNPs");
    if (!sprays && (rule.action == FaultAction::trim || rule.entropy_value >= 0)) {
      return at("transport.faults", i, "RoCEv2 has no entropy values, and its packets are not trimmed");
    }
  }
  return {};
}

// Whether queue pairs of one transport work with those of another. Marks, pacing and patience are each end's own.
bool match(const TransportSettings& one, const TransportSettings& other) {
  return one.kind == other.kind && one.path_mtu_bytes == other.path_mtu_bytes &&
         one.recovery.selective_repeat == other.recovery.selective_repeat &&
         one.recovery.initial_psn == other.recovery.initial_psn;
}

// Of ends that are here.
std::string validate_transports(const EnginePlan& plan) {
  if (plan.others.empty()) return {};
  std::map<int32_t, size_t> spoken;  // by rank
  for (const PlannedRank& rank : plan.ranks) spoken[rank.rank] = plan.ports[static_cast<size_t>(rank.port)].transport;
  for (size_t c = 0; c < plan.connections.size(); ++c) {
    const PlannedConnection& connection = plan.connections[c];
    const auto from = spoken.find(connection.src_rank);
    const auto to = spoken.find(connection.dst_rank);
    if (connection.path != Path::wire || from == spoken.end() || to == spoken.end()) continue;
    const auto transport_of = [&plan](size_t number) -> const TransportSettings& {
      return number == 0 ? plan.transport : plan.others[number - 1]->transport;
    };
    if (!match(transport_of(from->second), transport_of(to->second))) {
      return at("connections", c, "its ends speak unlike transports");
    }
  }
  return {};
}

// Messages of a rank that sends take receives in the order of the grants: one queue pair, and one queue of its port.
std::string validate_sender(const EnginePlan& plan, const PlannedRank& rank) {
  if (!rank.sends) return {};
  const PlannedPort& port = plan.ports[static_cast<size_t>(rank.port)];
  if (plan.transport.kind != TransportKind::roce || port.queues != 1) {
    return "it sends, which needs RoCEv2 and a port of one queue";
  }
  for (const PlannedConnection& connection : plan.connections) {
    if (connection.src_rank == rank.rank && connection.path == Path::wire && connection.qp_count > 1) {
      return "it sends, which needs one queue pair for each connection";
    }
  }
  return {};
}

// Both ends have as many planes.
std::string validate_ends(const EnginePlan& plan, const PlannedConnection& connection) {
  if (connection.path != Path::wire || plan.plane_addresses.empty()) return {};
  const auto planes_of = [&](const IpAddress& first) {
    const auto known = plan.plane_addresses.find(first);
    return known == plan.plane_addresses.end() ? size_t{1} : known->second.size();
  };
  return planes_of(connection.src_ip) == planes_of(connection.dst_ip) ? "" : "its ends have unlike numbers of planes";
}

std::string validate_connection(const EnginePlan& plan, const PlannedConnection& connection) {
  if (connection.path != Path::wire && connection.path != Path::scale_up && connection.path != Path::hairpin) {
    return "unknown path";
  }
  if (connection.src_rank == connection.dst_rank) return "a rank connected to itself";
  if (connection.communicator < -1 || connection.channel < 0) return "communicator or channel is negative";
  constexpr int32_t kMostQps = 128;  // NCCL_IB_QPS_PER_CONNECTION
  if (connection.qp_count > kMostQps) return "more than 128 queue pairs";
  if (connection.first_qp < 0 || connection.qp_count < 0 ||
      static_cast<size_t>(connection.first_qp) + static_cast<size_t>(connection.qp_count) > plan.qps.size()) {
    return "its queue pairs are out of range";
  }
  if (connection.path == Path::wire && connection.qp_count == 0) return "no queue pair";
  return validate_ends(plan, connection);
}

}  // namespace

int32_t ScheduleSet::table(int32_t schedule, int32_t position) const {
  const auto begin = table_positions.begin() + table_offsets[static_cast<size_t>(schedule)];
  const auto end = table_positions.begin() + table_offsets[static_cast<size_t>(schedule) + 1];
  const auto at = std::lower_bound(begin, end, position);
  return at == end || *at != position ? -1 : static_cast<int32_t>(at - table_positions.begin());
}

void finish_program(Program& program) {
  const size_t n = program.size();
  program.successor_offsets.assign(n + 1, 0);
  program.successors.assign(program.deps.size(), 0);
  program.network_ops = 0;
  for (const int32_t dep : program.deps) ++program.successor_offsets[static_cast<size_t>(dep) + 1];
  for (size_t i = 0; i < n; ++i) program.successor_offsets[i + 1] += program.successor_offsets[i];
  std::vector<int64_t> next(program.successor_offsets.begin(), program.successor_offsets.end() - 1);
  for (size_t i = 0; i < n; ++i) {
    for (int64_t d = program.dep_offsets[i]; d < program.dep_offsets[i + 1]; ++d) {
      const auto dep = static_cast<size_t>(program.deps[static_cast<size_t>(d)]);
      program.successors[static_cast<size_t>(next[dep]++)] = static_cast<int32_t>(i);
    }
    if (program.kind[i] != OpKind::delay) ++program.network_ops;
  }
}

void order_batches(ScheduleSet& set) {
  set.next_on_channel.clear();
  set.batch_channels.clear();
  if (std::all_of(set.lanes.begin(), set.lanes.end(), [](const Lane& lane) { return lane.batch == 0; })) return;
  constexpr int32_t kNoLane = -1;
  set.next_on_channel.assign(set.lanes.size(), kNoLane);
  std::vector<int32_t> last;  // of each channel of the table
  for (size_t t = 0; t + 1 < set.lane_offsets.size(); ++t) {
    last.clear();
    bool several = false;
    for (int32_t row = set.lane_offsets[t]; row < set.lane_offsets[t + 1]; ++row) {
      const Lane& lane = set.lanes[static_cast<size_t>(row)];
      const auto channel = static_cast<size_t>(lane.channel);
      if (channel >= last.size()) last.resize(channel + 1, kNoLane);
      if (last[channel] != kNoLane) set.next_on_channel[static_cast<size_t>(last[channel])] = row;
      last[channel] = row;
      several = several || lane.batch != 0;
    }
    set.batch_channels.push_back(several ? static_cast<int32_t>(last.size()) : 0);
  }
}

std::string validate(const EnginePlan& plan) {
  if (plan.iterations < 1) return "iterations: at least one is needed";
  if (auto wrong = validate_transport(plan.transport); !wrong.empty()) return wrong;
  if (auto wrong = validate_faults(plan); !wrong.empty()) return wrong;
  if (plan.ports.empty()) return "ports: none";
  // Each is a copy of the plan: transports that no port uses are not kept.
  if (plan.others.size() > plan.ports.size()) return "other_transports: more than there are ports";
  for (size_t p = 0; p < plan.ports.size(); ++p) {
    if (plan.ports[p].addresses.empty()) return at("ports", p, "no address");
    if (plan.ports[p].link_bps <= 0) return at("ports", p, "no link speed");
    if (plan.transport_number == 0 && plan.ports[p].transport > plan.others.size()) {
      return at("ports", p, "it speaks a transport that the assignment does not have");
    }
    for (const usid::Route& route : plan.ports[p].segments) {
      if (!usid::is_sound(route) || route.to.is_v4()) return at("ports", p, "a route of segments that no address holds");
    }
    if (plan.ports[p].queues == 0 || plan.ports[p].queues > 1024) return at("ports", p, "no queues, or too many");
    if (static_cast<uint64_t>(plan.ports[p].qpn_base) + plan.ports[p].qpn_count > (1U << 24)) {
      return at("ports", p, "queue pair numbers beyond 24 bits");
    }
    if (auto wrong = validate_queues(plan, p); !wrong.empty()) return at("ports", p, wrong.c_str());
    if (auto wrong = validate_planes(plan, p); !wrong.empty()) return at("ports", p, wrong.c_str());
  }
  if (auto wrong = validate_schedules(plan.schedules); !wrong.empty()) return wrong;
  for (size_t p = 0; p < plan.programs.size(); ++p) {
    if (auto wrong = validate_program(plan.programs[p], plan.schedules.cutting.size()); !wrong.empty()) {
      return at("programs", p, wrong.c_str());
    }
  }
  if (!monotone(plan.communicator_offsets, plan.communicator_members.size())) {
    return "communicators: offsets do not fit the members";
  }
  for (size_t r = 0; r < plan.ranks.size(); ++r) {
    if (auto wrong = validate_rank(plan, plan.ranks[r]); !wrong.empty()) return at("ranks", r, wrong.c_str());
    if (auto wrong = validate_sender(plan, plan.ranks[r]); !wrong.empty()) return at("ranks", r, wrong.c_str());
  }
  for (size_t c = 0; c < plan.connections.size(); ++c) {
    if (auto wrong = validate_connection(plan, plan.connections[c]); !wrong.empty()) {
      return at("connections", c, wrong.c_str());
    }
  }
  return validate_transports(plan);
}

}  // namespace etloop
