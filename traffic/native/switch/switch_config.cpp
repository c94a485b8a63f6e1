#include "switch/switch_config.h"

namespace etloop {

namespace {

constexpr size_t kMostPorts = 1024;
constexpr size_t kMostDestinations = 1 << 20;
constexpr int8_t kMostAlpha = 8;
constexpr uint16_t kMostWeight = 256;
constexpr unsigned kPortBits = 16;

std::string at(const char* what, size_t index) { return std::string(what) + "[" + std::to_string(index) + "]"; }

std::string check_port(const SwitchPortConfig& port, size_t index, size_t port_rules) {
  if (port.rules > port_rules) return at("ports", index) + ".rules: names rules that are not there";
  if (port.rate_bps <= 0) return at("ports", index) + ".rate_bps: must be above 0";
  if (port.propagation_ns < 0) return at("ports", index) + ".propagation_ns: must not be negative";
  if (port.weight == 0 || port.weight > kMostWeight) return at("ports", index) + ".weight: is outside 1 to 256";
  return {};
}

std::string check_group(const PriorityGroupConfig& group, size_t index) {
  if (group.reserved_bytes < 0 || group.headroom_bytes < 0 || group.resume_offset_bytes < 0) {
    return at("groups", index) + ": sizes must not be negative";
  }
  if (group.alpha_log2 > kMostAlpha || group.alpha_log2 < -kMostAlpha) {
    return at("groups", index) + ".alpha_log2: is outside -8 to 8";
  }
  return {};
}

std::string check_queue(const QueueConfig& queue, size_t index) {
  if (queue.weight == 0 || queue.weight > 1'000'000) return at("queues", index) + ".weight: is outside 1 to 1000000";
  if (queue.alpha_log2 > kMostAlpha || queue.alpha_log2 < -kMostAlpha) {
    return at("queues", index) + ".alpha_log2: is outside -8 to 8";
  }
  if (queue.reserved_bytes < 0) return at("queues", index) + ".reserved_bytes: must not be negative";
  if (queue.kmin_bytes < 0 || queue.kmax_bytes < queue.kmin_bytes) {
    return at("queues", index) + ": kmin_bytes must not be above kmax_bytes";
  }
  if (queue.pmax_per_million > 1'000'000) return at("queues", index) + ".pmax_per_million: is above 1000000";
  return {};
}

std::string check_rules(const PortRules& rules) {
  std::string wrong;
  for (size_t i = 0; i < kPriorities && wrong.empty(); ++i) wrong = check_group(rules.groups[i], i);
  for (size_t i = 0; i < kPriorities && wrong.empty(); ++i) wrong = check_queue(rules.queues[i], i);
  return wrong;
}

std::string check_fault(const SwitchFault& fault, size_t index, size_t ports) {
  const auto known = [&](int32_t port) { return port >= -1 && port < static_cast<int32_t>(ports); };
  if (!known(fault.in_port) || !known(fault.out_port)) return at("faults", index) + ": names a port that is not there";
  if (fault.per_million > 1'000'000) return at("faults", index) + ".per_million: is above 1000000";
  if (fault.until_ns < fault.from_ns) return at("faults", index) + ": ends before it begins";
  return {};
}

std::string check_maps(const SwitchConfig& config) {
  for (const uint8_t value : config.dscp_to_class) {
    if (value >= kPriorities) return "dscp_to_class: names traffic class " + std::to_string(value) + " of 0 to 7";
  }
  for (const auto* map : {&config.class_to_queue, &config.class_to_group, &config.group_to_priority, &config.priority_to_queue}) {
    for (const uint8_t value : *map) {
      if (value >= kPriorities) return "a map names " + std::to_string(value) + " of 0 to 7";
    }
  }
  return {};
}

std::string check_ways(const WayRules& ways) {
  if (ways.hash_fields == 0 || ways.hash_fields >> kHashFields != 0) return "hash_fields: names none, or one that is not known";
  if (ways.entropy_bits == 0 || ways.entropy_shift + ways.entropy_bits > kPortBits) {
    return "entropy_bits: are none, or beyond the 16 of a UDP port";
  }
  return ways.flowlet_gap_ns < 0 ? "times must not be negative" : "";
}

std::string check_usids(const UsidTable& table, size_t ports) {
  for (size_t i = 0; i < table.entries.size(); ++i) {
    const UsidEntry& entry = table.entries[i];
    const bool rises = entry.usid != 0 && (i == 0 || table.entries[i - 1].usid < entry.usid);
    if (!rises) return at("usids", i) + ": is 0, or not above the one before it";
    if (!entry.is_own && entry.ports.empty()) return at("usids", i) + ": has no port";
    for (const uint16_t port : entry.ports) {
      if (port >= ports) return at("usids", i) + ": names port " + std::to_string(port);
    }
  }
  return {};
}

std::string check_trimming(const SwitchTrimming& trimming) {
  if (trimming.frame_bytes < 0 || (trimming.frame_bytes > 0 && trimming.frame_bytes < 64)) {
    return "trimming.frame_bytes: must be 0, or 64 and more";
  }
  if (trimming.dscp > 63 || trimming.last_hop_dscp > 63) return "trimming: a DSCP is above 63";
  if (trimming.queue >= static_cast<int16_t>(kPriorities)) return "trimming.queue: is above 7";
  return {};
}

}  // namespace

int64_t set_aside_bytes(const SwitchConfig& config) {
  int64_t reserved = 0;
  int64_t headroom = 0;
  for (const SwitchPortConfig& port : config.ports) {
    for (const PriorityGroupConfig& group : config.rules_of(port).groups) {
      reserved += group.reserved_bytes;
      if (group.lossless) headroom += group.headroom_bytes;
    }
  }
  return reserved + (config.headroom_pool_bytes >= 0 ? config.headroom_pool_bytes : headroom);
}

std::string validate(const SwitchConfig& config) {
  if (config.ports.empty() || config.ports.size() > kMostPorts) return "ports: must be 1 to 1024";
  if (config.routes.size() > kMostDestinations) return "routes: are more than 1048576";
  std::string wrong;
  const size_t rules = config.port_rules.size();
  for (size_t i = 0; i < config.ports.size() && wrong.empty(); ++i) wrong = check_port(config.ports[i], i, rules);
  if (wrong.empty()) wrong = check_rules(config);
  for (size_t i = 0; i < rules && wrong.empty(); ++i) {
    wrong = check_rules(config.port_rules[i]);
    if (!wrong.empty()) wrong = at("port_rules", i) + "." + wrong;
  }
  for (size_t i = 0; i < config.faults.size() && wrong.empty(); ++i) {
    wrong = check_fault(config.faults[i], i, config.ports.size());
  }
  if (wrong.empty()) wrong = check_maps(config);
  if (!wrong.empty()) return wrong;
  if (config.headroom_pool_bytes < -1) return "headroom_pool_bytes: must be -1 or more";
  const int64_t set_aside = set_aside_bytes(config);
  if (set_aside > config.buffer_bytes) {
    return "buffer_bytes: " + std::to_string(config.buffer_bytes) + " is less than the " + std::to_string(set_aside) +
           " that reserves and headroom of all ports occupy";
  }
  if (config.latency_ns < 0 || config.watchdog_detect_ns < 0 || config.watchdog_restore_ns < 0) {
    return "times must not be negative";
  }
  if (std::string what = check_ways(config.ways); !what.empty()) return what;
  if (std::string what = check_usids(config.usids, config.ports.size()); !what.empty()) return what;
  if (std::string what = check_trimming(config.trimming); !what.empty()) return what;
  for (size_t i = 0; i < config.routes.size(); ++i) {
    for (const uint16_t port : config.routes[i]) {
      if (port >= config.ports.size()) return at("routes", i) + ": names port " + std::to_string(port);
    }
  }
  return {};
}

}  // namespace etloop
