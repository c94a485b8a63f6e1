#include "bind/switch.h"

#include <algorithm>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/columns.h"

namespace nb = nanobind;

namespace etloop {

namespace {

template <size_t N>
std::array<uint8_t, N> read_map(nb::handle settings, const char* name) {
  const auto rows = read_value<std::vector<uint8_t>>(settings, name);
  if (rows.size() != N) {
    const std::string counts = std::to_string(rows.size()) + " rows instead of " + std::to_string(N);
    throw nb::value_error((std::string(name) + " has " + counts).c_str());
  }
  std::array<uint8_t, N> map{};
  std::copy(rows.begin(), rows.end(), map.begin());
  return map;
}

// Return the tuple `name`, which has a value for each priority.
nb::object eight(nb::handle settings, const char* name) {
  nb::object rows = nb::getattr(settings, name);
  if (nb::len(rows) != kPriorities) throw nb::value_error((std::string(name) + " must be 8").c_str());
  return rows;
}

PriorityGroupConfig group_from(nb::handle group) {
  PriorityGroupConfig config;
  config.lossless = read_value<bool>(group, "lossless");
  config.reserved_bytes = read_value<int64_t>(group, "reserved_bytes");
  config.alpha_log2 = read_value<int8_t>(group, "alpha_log2");
  config.headroom_bytes = read_value<int64_t>(group, "headroom_bytes");
  config.resume_offset_bytes = read_value<int64_t>(group, "resume_offset_bytes");
  return config;
}

QueueConfig queue_from(nb::handle queue) {
  QueueConfig config;
  config.strict = read_value<bool>(queue, "strict");
  config.weight = read_value<uint32_t>(queue, "weight");
  config.alpha_log2 = read_value<int8_t>(queue, "alpha_log2");
  config.reserved_bytes = read_value<int64_t>(queue, "reserved_bytes");
  config.trims = read_value<bool>(queue, "trims");
  const nb::object marking = nb::getattr(queue, "marking");
  if (marking.is_none()) return config;
  config.ecn = true;
  config.kmin_bytes = read_value<int64_t>(marking, "kmin_bytes");
  config.kmax_bytes = read_value<int64_t>(marking, "kmax_bytes");
  config.pmax_per_million = read_value<uint32_t>(marking, "pmax_per_million");
  config.mark_at_dequeue = read_value<bool>(marking, "at_dequeue");
  return config;
}

SwitchFault fault_from(nb::handle fault) {
  SwitchFault config;
  config.in_port = read_value<int32_t>(fault, "in_port");
  config.out_port = read_value<int32_t>(fault, "out_port");
  config.per_million = read_value<uint32_t>(fault, "per_million");
  config.every = read_value<uint32_t>(fault, "every");
  config.from_ns = read_value<int64_t>(fault, "from_ns");
  config.until_ns = read_value<int64_t>(fault, "until_ns");
  config.longer_than_bytes = read_value<int64_t>(fault, "longer_than_bytes");
  config.corrupt = read_value<bool>(fault, "corrupt");
  return config;
}

FabricEnd end_from(nb::handle end) { return {read_value<uint32_t>(end, "switch"), read_value<uint32_t>(end, "port")}; }

// Return `int(value)` of an IntEnum.
template <typename Enum>
Enum read_enum(nb::handle owner, const char* name, Enum last) {
  const auto value = read_value<uint8_t>(owner, name);
  if (value > static_cast<uint8_t>(last)) throw nb::value_error((std::string(name) + " is not known").c_str());
  return static_cast<Enum>(value);
}

SwitchTrimming trimming_from(nb::handle trimming) {
  SwitchTrimming config;
  config.frame_bytes = read_value<int64_t>(trimming, "frame_bytes");
  config.dscp = read_value<uint8_t>(trimming, "dscp");
  if (!nb::getattr(trimming, "last_hop_dscp").is_none()) config.last_hop_dscp = read_value<uint8_t>(trimming, "last_hop_dscp");
  if (!nb::getattr(trimming, "queue").is_none()) config.queue = read_value<uint8_t>(trimming, "queue");
  for (const auto dscp : read_value<std::vector<uint8_t>>(trimming, "exempt_dscps")) {
    config.exempt_dscps |= uint64_t{1} << (dscp & 63);
  }
  return config;
}

// contract.model.topology.Usids -> the identifiers of a switch and of its ports, and routes to those of other switches.
UsidTable usids_from(nb::handle usids) {
  UsidTable table;
  table.block = read_value<uint32_t>(usids, "block");
  table.entries.push_back({read_value<uint16_t>(usids, "node"), true, {}});
  uint16_t port = 0;
  for (const auto usid : read_value<std::vector<uint16_t>>(usids, "adjacencies")) table.entries.push_back({usid, true, {port++}});
  for (const nb::handle other : nb::getattr(usids, "others")) {
    table.entries.push_back({read_value<uint16_t>(other, "node"), false, read_value<std::vector<uint16_t>>(other, "ports")});
  }
  std::sort(table.entries.begin(), table.entries.end(),
            [](const UsidEntry& a, const UsidEntry& b) { return a.usid < b.usid; });
  return table;
}

// Ends that do not exist are rejected later, together with all other mistakes.
void mark_host_port(FabricConfig& config, const FabricEnd& end) {
  if (end.switch_index >= config.switches.size()) return;
  std::vector<SwitchPortConfig>& ports = config.switches[end.switch_index].ports;
  if (end.port < ports.size()) ports[end.port].to_host = true;
}

// The groups, queues and pauses of a switch, or of ports that differ.
PortRules rules_from(nb::handle settings) {
  PortRules rules;
  size_t number = 0;
  for (const nb::handle group : eight(settings, "groups")) rules.groups[number++] = group_from(group);
  number = 0;
  for (const nb::handle queue : eight(settings, "queues")) rules.queues[number++] = queue_from(queue);
  rules.pfc = read_value<bool>(settings, "pfc");
  return rules;
}

void read_pausing(nb::handle settings, SwitchConfig& config) {
  config.pause_quanta = read_value<uint16_t>(settings, "pause_quanta");
  const nb::object watchdog = nb::getattr(settings, "watchdog");
  if (watchdog.is_none()) return;
  config.watchdog_detect_ns = read_value<int64_t>(watchdog, "detect_ns");
  config.watchdog_restore_ns = read_value<int64_t>(watchdog, "restore_ns");
  config.watchdog_action = read_enum(watchdog, "action", WatchdogAction::forward);
}

}  // namespace

SwitchConfig switch_config_from(nb::handle settings, nb::handle routes) {
  SwitchConfig config;
  config.name = read_value<std::string>(settings, "name");
  for (const nb::handle port : nb::getattr(settings, "ports")) {
    config.ports.push_back({read_value<int64_t>(port, "rate_bps"), read_value<int64_t>(port, "delay_ns")});
    config.ports.back().weight = read_value<uint16_t>(port, "weight");
    config.ports.back().honours_pause = read_value<bool>(port, "honours_pause");
    config.ports.back().rules = read_value<uint16_t>(port, "rules");
  }
  config.buffer_bytes = read_value<int64_t>(settings, "buffer_bytes");
  if (const nb::object pool = nb::getattr(settings, "headroom_pool_bytes"); !pool.is_none()) {
    config.headroom_pool_bytes = read_value<int64_t>(settings, "headroom_pool_bytes");
  }
  config.dscp_to_class = read_map<64>(settings, "dscp_to_class");
  config.class_to_queue = read_map<kPriorities>(settings, "class_to_queue");
  config.class_to_group = read_map<kPriorities>(settings, "class_to_group");
  config.group_to_priority = read_map<kPriorities>(settings, "group_to_priority");
  config.priority_to_queue = read_map<kPriorities>(settings, "priority_to_queue");
  static_cast<PortRules&>(config) = rules_from(settings);
  for (const nb::handle rules : nb::getattr(settings, "port_rules")) config.port_rules.push_back(rules_from(rules));
  read_pausing(settings, config);
  config.latency_ns = read_value<int64_t>(settings, "latency_ns");
  config.ways.balancing = read_enum(settings, "balancing", LoadBalancing::structured);
  config.ways.flowlet_gap_ns = read_value<int64_t>(settings, "flowlet_gap_ns");
  config.ways.hash_fields = read_value<uint16_t>(settings, "hash_bits");
  config.ways.entropy_shift = read_value<uint8_t>(settings, "entropy_shift");
  config.ways.entropy_bits = read_value<uint8_t>(settings, "entropy_bits");
  if (const nb::object trimming = nb::getattr(settings, "trimming"); !trimming.is_none()) {
    config.trimming = trimming_from(trimming);
  }
  if (const nb::object usids = nb::getattr(settings, "usids"); !usids.is_none()) config.usids = usids_from(usids);
  config.seed = read_value<uint64_t>(settings, "hash_seed");
  config.mark_seed = read_value<uint64_t>(settings, "mark_seed");
  config.fault_seed = read_value<uint64_t>(settings, "fault_seed");
  for (const nb::handle fault : nb::getattr(settings, "faults")) config.faults.push_back(fault_from(fault));
  config.routes = nb::cast<std::vector<std::vector<uint16_t>>>(routes);
  return config;
}

FabricConfig fabric_from(nb::handle topology, nb::handle routes) {
  FabricConfig config;
  const nb::object switches = nb::getattr(topology, "switches");
  if (nb::len(switches) != nb::len(routes)) throw nb::value_error("routes are not those of the topology");
  size_t number = 0;
  for (const nb::handle settings : switches) config.switches.push_back(switch_config_from(settings, routes[number++]));
  for (const nb::handle link : nb::getattr(topology, "links")) {
    config.links.push_back({end_from(nb::getattr(link, "a")), end_from(nb::getattr(link, "b"))});
  }
  for (const nb::handle attachment : nb::getattr(topology, "attachments")) {
    config.attachments.push_back({end_from(nb::getattr(attachment, "end")), read_value<bool>(attachment, "honours_pause")});
    mark_host_port(config, config.attachments.back().end);
  }
  for (const nb::handle outage : nb::getattr(topology, "outages")) {
    config.outages.push_back({end_from(nb::getattr(outage, "end")), read_value<int64_t>(outage, "from_ns"),
                              read_value<int64_t>(outage, "until_ns")});
  }
  const nb::object routing = nb::getattr(topology, "routing");
  config.detection_ns = read_value<int64_t>(routing, "detection_ns");
  config.convergence_ns = read_value<int64_t>(routing, "convergence_ns");
  if (const std::string wrong = validate(config); !wrong.empty()) throw nb::value_error(wrong.c_str());
  return config;
}

}  // namespace etloop
