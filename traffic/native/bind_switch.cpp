#include "bind_switch.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <string>
#include <vector>

#include "bind_columns.h"

namespace nb = nanobind;

namespace etloop {

namespace {

template <size_t kCount>
std::array<uint8_t, kCount> read_map(nb::handle settings, const char* name) {
  const auto values = read_value<std::vector<uint8_t>>(settings, name);
  if (values.size() != kCount) {
    throw nb::value_error((std::string(name) + " has " + std::to_string(values.size()) + " values").c_str());
  }
  std::array<uint8_t, kCount> map{};
  std::copy(values.begin(), values.end(), map.begin());
  return map;
}

PriorityGroupConfig read_group(nb::handle group) {
  PriorityGroupConfig config;
  config.lossless = read_value<bool>(group, "lossless");
  config.reserved_bytes = read_value<int64_t>(group, "reserved_bytes");
  config.alpha_log2 = read_value<int8_t>(group, "alpha_log2");
  config.headroom_bytes = read_value<int64_t>(group, "headroom_bytes");
  config.resume_offset_bytes = read_value<int64_t>(group, "resume_offset_bytes");
  return config;
}

QueueConfig read_queue(nb::handle queue) {
  QueueConfig config;
  config.strict = read_value<bool>(queue, "strict");
  config.weight = read_value<uint32_t>(queue, "weight");
  config.alpha_log2 = read_value<int8_t>(queue, "alpha_log2");
  config.reserved_bytes = read_value<int64_t>(queue, "reserved_bytes");
  const nb::object marking = nb::getattr(queue, "marking");
  if (marking.is_none()) return config;
  config.ecn = true;
  config.mark_at_dequeue = read_value<bool>(marking, "at_dequeue");
  config.kmin_bytes = read_value<int64_t>(marking, "kmin_bytes");
  config.kmax_bytes = read_value<int64_t>(marking, "kmax_bytes");
  config.pmax_per_million = read_value<uint32_t>(marking, "pmax_per_million");
  return config;
}

SwitchFault read_fault(nb::handle fault) {
  SwitchFault config;
  config.in_port = read_value<int32_t>(fault, "in_port");
  config.out_port = read_value<int32_t>(fault, "out_port");
  config.per_million = read_value<uint32_t>(fault, "per_million");
  config.every = read_value<uint32_t>(fault, "every");
  config.from_ns = read_value<int64_t>(fault, "from_ns");
  config.until_ns = read_value<int64_t>(fault, "until_ns");
  config.corrupt = read_value<bool>(fault, "corrupt");
  return config;
}

template <typename Config, typename Read>
void read_eight(nb::handle settings, const char* name, std::array<Config, kPriorities>& out, Read read) {
  size_t index = 0;
  for (const nb::handle one : nb::getattr(settings, name)) {
    if (index < kPriorities) out[index] = read(one);
    ++index;
  }
  if (index != kPriorities) throw nb::value_error((std::string(name) + " are not 8").c_str());
}

}  // namespace

SwitchConfig switch_config_from(nb::handle settings, nb::handle routes) {
  SwitchConfig config;
  config.name = read_value<std::string>(settings, "name");
  for (const nb::handle port : nb::getattr(settings, "ports")) {
    config.ports.push_back({read_value<int64_t>(port, "rate_bps"), read_value<int64_t>(port, "delay_ns")});
  }
  config.buffer_bytes = read_value<int64_t>(settings, "buffer_bytes");
  config.dscp_to_class = read_map<64>(settings, "dscp_to_class");
  config.class_to_queue = read_map<kPriorities>(settings, "class_to_queue");
  config.class_to_group = read_map<kPriorities>(settings, "class_to_group");
  config.group_to_priority = read_map<kPriorities>(settings, "group_to_priority");
  config.priority_to_queue = read_map<kPriorities>(settings, "priority_to_queue");
  read_eight(settings, "groups", config.groups, read_group);
  read_eight(settings, "queues", config.queues, read_queue);
  config.pfc = read_value<bool>(settings, "pfc");
  config.pause_quanta = read_value<uint16_t>(settings, "pause_quanta");
  if (const nb::object watchdog = nb::getattr(settings, "watchdog"); !watchdog.is_none()) {
    config.watchdog_detect_ns = read_value<int64_t>(watchdog, "detect_ns");
    config.watchdog_restore_ns = read_value<int64_t>(watchdog, "restore_ns");
    config.watchdog_action = static_cast<WatchdogAction>(nb::cast<int>(nb::int_(nb::getattr(watchdog, "action"))));
  }
  config.latency_ns = read_value<int64_t>(settings, "latency_ns");
  config.balancing = static_cast<LoadBalancing>(nb::cast<int>(nb::int_(nb::getattr(settings, "balancing"))));
  config.flowlet_gap_ns = read_value<int64_t>(settings, "flowlet_gap_ns");
  if (const nb::object trimming = nb::getattr(settings, "trimming"); !trimming.is_none()) {
    config.trim_bytes = read_value<int64_t>(trimming, "frame_bytes");
    config.trim_dscp = read_value<uint8_t>(trimming, "dscp");
  }
  config.seed = read_value<uint64_t>(settings, "seed");
  for (const nb::handle fault : nb::getattr(settings, "faults")) config.faults.push_back(read_fault(fault));
  config.routes = nb::cast<std::vector<std::vector<uint16_t>>>(routes);
  return config;
}

}  // namespace etloop
