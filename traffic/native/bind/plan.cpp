#include "bind/plan.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "bind/columns.h"
#include "bind/congestion.h"
#include "bind/schedule.h"
#include "port/device_port.h"
#include "wire/ethernet.h"

namespace nb = nanobind;

namespace etloop {

namespace {

[[noreturn]] void refuse(const std::string& why) { throw nb::value_error(why.c_str()); }

template <typename To, typename From>
std::vector<To> converted(const std::vector<From>& from) {
  std::vector<To> to;
  to.reserve(from.size());
  for (const From value : from) to.push_back(static_cast<To>(value));
  return to;
}

FaultRule read_fault(nb::handle rule) {
  const auto action = read_value<uint8_t>(rule, "action");
  const auto direction = read_value<uint8_t>(rule, "direction");
  const auto packets = read_value<uint8_t>(rule, "packets");
  if (action >= kFaultActions || direction > 1 || packets > static_cast<uint8_t>(FaultPackets::request)) {
    refuse("transport.faults: unknown action, direction or kind of packets");
  }
  FaultRule read;
  read.action = static_cast<FaultAction>(action);
  read.direction = static_cast<FaultDirection>(direction);
  read.packets = static_cast<FaultPackets>(packets);
  read.src_rank = read_value<int32_t>(rule, "src_rank");
  read.dst_rank = read_value<int32_t>(rule, "dst_rank");
  read.queue_pair = read_value<int32_t>(rule, "queue_pair");
  read.communicator = read_value<int32_t>(rule, "communicator");
  read.channel = read_value<int32_t>(rule, "channel");
  read.entropy_value = read_value<int32_t>(rule, "entropy_value");
  read.first = read_value<uint64_t>(rule, "first");
  read.last = read_value<uint64_t>(rule, "last");
  read.every = read_value<uint64_t>(rule, "every");
  read.chance_per_million = read_value<uint32_t>(rule, "chance_per_million");
  read.delay_ns = read_value<int64_t>(rule, "delay_ns");
  read.behind_packets = read_value<uint32_t>(rule, "behind_packets");
  read.seed = read_value<uint64_t>(rule, "seed");
  if (read.first == 0 || read.every == 0 || read.delay_ns < 0 || read.delay_ns > 60'000'000'000) {
    refuse("transport.faults: a packet number, interval or delay is out of range");
  }
  return read;
}

PauseRule read_pause(nb::handle rule) {
  const PauseRule read{read_value<uint8_t>(rule, "priority"), read_value<uint16_t>(rule, "quanta"),
                       read_value<int64_t>(rule, "first_ns"), read_value<int64_t>(rule, "every_ns"),
                       read_value<uint64_t>(rule, "count")};
  if (read.priority > 7 || read.first_ns < 0 || read.every_ns < 1) refuse("ports: a pause rule is out of range");
  return read;
}

void read_segments(nb::handle settings, PlannedPort& port) {
  const auto block = read_value<uint32_t>(settings, "block");
  const auto decapsulation = read_value<uint16_t>(settings, "decapsulation");
  port.segment_end = {block, decapsulation};
  for (nb::handle route : nb::getattr(settings, "routes")) {
    usid::Route read;
    read.to = parse_address(read_value<std::string>(route, "to"));
    read.block = block;
    read.tiers = read_value<std::vector<std::vector<uint16_t>>>(route, "tiers");
    read.decapsulation = decapsulation;
    port.segments.push_back(std::move(read));
  }
}

PlannedPort read_port(nb::handle settings, int32_t vlan_id) {
  PlannedPort port;
  port.name = read_value<std::string>(settings, "name");
  for (nb::handle address : nb::getattr(settings, "addresses")) {
    port.addresses.push_back(parse_address(nb::cast<std::string>(address)));
  }
  port.udp_port = read_value<uint16_t>(settings, "udp_port");
  port.link_bps = read_value<int64_t>(settings, "link_bps");
  port.qpn_base = read_value<uint32_t>(settings, "qpn_base");
  port.qpn_count = read_value<uint32_t>(settings, "qpn_count");
  const auto backend = static_cast<Backend>(read_value<uint8_t>(settings, "backend"));
  const bool writes_frames = backend == Backend::packet || backend == Backend::xdp;
  port.queue = read_value<int32_t>(settings, "queue");
  if (backend == Backend::udp || port.queue >= 0) port.queues = read_value<uint32_t>(settings, "queues");
  port.planes = read_value<uint32_t>(settings, "planes");
  port.plane = read_value<int32_t>(settings, "plane");
  port.transport = read_value<size_t>(settings, "transport");
  port.tag_bytes = writes_frames && vlan_id >= 0 ? ethernet::kTagBytes : 0;
  for (nb::handle rule : nb::getattr(settings, "pauses")) port.pauses.push_back(read_pause(rule));
  port.device = read_value<std::string>(settings, "device");
  port.gid_index = read_value<int32_t>(settings, "gid_index");
  if (const nb::object segments = nb::getattr(settings, "segments"); !segments.is_none()) read_segments(segments, port);
  return port;
}

// A column of 16-byte values. numpy's void type has no equal in the array protocol that nanobind speaks, so its bytes are taken.
std::vector<IpAddress> read_addresses(nb::handle columns, const char* name) {
  const auto content = nb::cast<nb::bytes>(nb::getattr(columns, name).attr("tobytes")());
  if (content.size() % sizeof(IpAddress) != 0) refuse(std::string(name) + " is not a column of 16-byte addresses");
  std::vector<IpAddress> addresses(content.size() / sizeof(IpAddress));
  if (!addresses.empty()) std::memcpy(addresses.data(), content.data(), content.size());
  return addresses;
}

Program read_program(nb::handle columns) {
  Program program;
  const auto kinds = read_column<uint8_t>(columns, "kind");
  if (std::any_of(kinds.begin(), kinds.end(), [](uint8_t kind) { return kind > 3; })) refuse("programs: unknown op kind");
  program.kind = converted<OpKind>(kinds);
  program.schedule = read_column<int32_t>(columns, "schedule");
  program.slot = read_column<int32_t>(columns, "slot");
  program.sequence = read_column<int32_t>(columns, "sequence");
  program.message_bytes = read_column<int64_t>(columns, "message_bytes");
  program.delay_ns = read_column<int64_t>(columns, "delay_ns");
  program.dep_offsets = read_column<int64_t>(columns, "dep_offsets");
  program.deps = read_column<int32_t>(columns, "deps");
  return program;
}

PlannedRank read_rank(nb::handle rank) {
  PlannedRank planned{read_value<int32_t>(rank, "rank"), read_value<int32_t>(rank, "program"),
                      read_value<int32_t>(rank, "port"), read_value<int32_t>(rank, "address"), {}, {}, false, -1, false};
  for (nb::handle value : nb::getattr(rank, "communicators")) planned.communicators.push_back(nb::cast<int32_t>(value));
  for (nb::handle value : nb::getattr(rank, "peers")) planned.peers.push_back(nb::cast<int32_t>(value));
  planned.background = read_value<bool>(rank, "background");
  planned.traffic_class = read_value<int16_t>(rank, "traffic_class");
  planned.sends = read_value<bool>(rank, "sends");
  return planned;
}

void read_connections(nb::handle columns, EnginePlan& plan) {
  const auto communicator = read_column<int32_t>(columns, "communicator");
  const auto channel = read_column<int32_t>(columns, "channel");
  const auto src_rank = read_column<int32_t>(columns, "src_rank");
  const auto dst_rank = read_column<int32_t>(columns, "dst_rank");
  const auto path = read_column<uint8_t>(columns, "path");
  const auto src_ip = read_addresses(columns, "src_ip");
  const auto dst_ip = read_addresses(columns, "dst_ip");
  const auto offsets = read_column<int32_t>(columns, "qp_offsets");
  const size_t n = communicator.size();
  if (channel.size() != n || src_rank.size() != n || dst_rank.size() != n || path.size() != n || src_ip.size() != n ||
      dst_ip.size() != n || offsets.size() != n + 1) {
    refuse("connections: the columns differ in length");
  }
  for (size_t c = 0; c < n; ++c) {
    if (path[c] > 2) refuse("connections[" + std::to_string(c) + "]: unknown path");
    plan.connections.push_back({communicator[c], channel[c], src_rank[c], dst_rank[c], static_cast<Path>(path[c]), src_ip[c],
                                dst_ip[c], offsets[c], offsets[c + 1] - offsets[c]});
  }
  const auto src_qpn = read_column<uint32_t>(columns, "src_qpn");
  const auto dst_qpn = read_column<uint32_t>(columns, "dst_qpn");
  const auto src_port = read_column<uint16_t>(columns, "src_udp_port");
  const auto dst_port = read_column<uint16_t>(columns, "dst_udp_port");
  if (dst_qpn.size() != src_qpn.size() || src_port.size() != src_qpn.size() || dst_port.size() != src_qpn.size()) {
    refuse("connections: the columns of the queue pairs differ in length");
  }
  for (size_t q = 0; q < src_qpn.size(); ++q) plan.qps.push_back({src_qpn[q], dst_qpn[q], src_port[q], dst_port[q]});
}

}  // namespace

IpAddress parse_address(const std::string& text) {
  const std::optional<IpAddress> address = IpAddress::parse(text);
  if (!address) refuse("\"" + text + "\" is not an IP address");
  return *address;
}

namespace {

// Reads the congestion control of an assignment's transport with the number `transport` from its settings.
using ControlReader = std::function<CongestionParams(nb::handle settings, size_t transport)>;

void read_transport_into(EnginePlan& plan, nb::handle transport, size_t number, const ControlReader& control_of) {
  const nb::object congestion = nb::getattr(transport, "congestion");
  plan.transport_number = number;
  plan.transport = read_settings<TransportSettings>(transport);
  for (nb::handle rule : nb::getattr(transport, "faults")) plan.faults.push_back(read_fault(rule));
  plan.congestion = control_of(congestion, number);
  plan.series = read_settings<SeriesSettings>(nb::getattr(congestion, "series"));
}

std::shared_ptr<const EnginePlan> plan_with(nb::handle assignment, const ControlReader& control_of) {
  auto plan = std::make_shared<EnginePlan>();
  plan->iterations = read_value<int32_t>(assignment, "iterations");
  const nb::object transport = nb::getattr(assignment, "transport");
  const auto vlan_id = read_value<int32_t>(transport, "vlan_id");
  for (nb::handle port : nb::getattr(assignment, "ports")) plan->ports.push_back(read_port(port, vlan_id));
  read_transport_into(*plan, transport, 0, control_of);
  plan->scale_up_bps = read_value<int64_t>(assignment, "scale_up_bps");
  plan->scale_up_latency_ns = read_value<int64_t>(assignment, "scale_up_latency_ns");
  for (nb::handle endpoint : nb::getattr(assignment, "planes")) {
    std::vector<IpAddress> planes;
    for (nb::handle address : endpoint) planes.push_back(parse_address(nb::cast<std::string>(address)));
    if (planes.empty()) refuse("planes: an end without addresses");
    plan->plane_addresses.emplace(planes.front(), planes);
  }
  plan->schedules = schedule_set_from(nb::getattr(assignment, "schedules"));
  for (nb::handle program : nb::getattr(assignment, "programs")) plan->programs.push_back(read_program(program));
  for (nb::handle rank : nb::getattr(assignment, "ranks")) plan->ranks.push_back(read_rank(rank));
  plan->communicator_offsets = read_column<int32_t>(assignment, "communicator_offsets");
  plan->communicator_members = read_column<int32_t>(assignment, "communicator_members");
  read_connections(nb::getattr(assignment, "connections"), *plan);
  std::vector<std::shared_ptr<EnginePlan>> others;
  for (nb::handle other : nb::getattr(assignment, "other_transports")) {
    others.push_back(std::make_shared<EnginePlan>());
    read_transport_into(*others.back(), other, others.size(), control_of);
  }
  plan->others.assign(others.begin(), others.end());
  if (const std::string wrong = validate(*plan); !wrong.empty()) refuse(wrong);
  for (Program& program : plan->programs) finish_program(program);
  order_batches(plan->schedules);
  for (const auto& other : others) {
    EnginePlan whole = *plan;
    whole.others.clear();
    whole.transport_number = other->transport_number;
    whole.transport = other->transport;
    whole.faults = std::move(other->faults);
    whole.congestion = std::move(other->congestion);
    whole.series = other->series;
    if (const std::string wrong = validate(whole); !wrong.empty()) {
      refuse("other_transports[" + std::to_string(whole.transport_number - 1) + "]: " + wrong);
    }
    *other = std::move(whole);
  }
  return plan;
}

}  // namespace

std::shared_ptr<const EnginePlan> plan_from(nb::handle assignment, const std::vector<std::string>& cc_libraries) {
  return plan_with(assignment, [&](nb::handle settings, size_t transport) {
    return congestion_from(settings, transport < cc_libraries.size() ? cc_libraries[transport] : "");
  });
}

std::shared_ptr<const EnginePlan> plan_without_control(nb::handle assignment) {
  return plan_with(assignment, [](nb::handle, size_t) { return CongestionParams{}; });
}

}  // namespace etloop
