#include "switch/switch_ways.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

namespace etloop {

SwitchWays::SwitchWays(const SwitchConfig& config)
    : config_(config), up_(config.ports.size(), 1), slowness_(config.ports.size()), mixed_seed_(seed_of_hash(config.seed)) {
  WayTable ways;
  for (const std::vector<uint16_t>& toward : config.routes) {
    ways.first.push_back(static_cast<uint32_t>(ways.ports.size()));
    ways.ports.insert(ways.ports.end(), toward.begin(), toward.end());
  }
  ways.first.push_back(static_cast<uint32_t>(ways.ports.size()));
  table_ = grouped(ways);
  const LoadBalancing balancing = config.ways.balancing;
  if (balancing == LoadBalancing::flowlet || balancing == LoadBalancing::adaptive_flowlet) flowlets_.resize(kFlowlets);
  int64_t fastest_bps = 1;
  for (const SwitchPortConfig& port : config.ports) fastest_bps = std::max(fastest_bps, port.rate_bps);
  for (size_t port = 0; port < slowness_.size(); ++port) {
    slowness_[port] = std::min(fastest_bps * kSlowness / config.ports[port].rate_bps, kMostSlowness);
  }
}

// A port of weight w occurs w times in its group, as the members of a group in hardware; weights are divided by their greatest
// common divisor. Equal weights change nothing.
SwitchWays::Table SwitchWays::grouped(const WayTable& ways) const {
  Table table;
  table.groups.reserve(ways.first.size());
  std::span<const uint16_t> last;
  for (size_t destination = 0; destination + 1 < ways.first.size(); ++destination) {
    const std::span<const uint16_t> ports(ways.ports.data() + ways.first[destination],
                                          ways.first[destination + 1] - ways.first[destination]);
    if (!table.groups.empty() && std::ranges::equal(ports, last)) {
      table.groups.push_back(table.groups.back());
      continue;
    }
    const auto first = static_cast<uint32_t>(table.ports.size());
    uint16_t common = 0;
    for (const uint16_t port : ports) common = std::gcd(common, config_.ports[port].weight);
    for (const uint16_t port : ports) {
      table.ports.insert(table.ports.end(), static_cast<size_t>(config_.ports[port].weight / common), port);
    }
    table.groups.push_back({first, static_cast<uint32_t>(table.ports.size()) - first});
    last = ports;
  }
  return table;
}

void SwitchWays::set(const WayTable& ways) {
  assert(ways.first.size() == table_.groups.size() + 1);
  Table table = grouped(ways);
  if (table == table_) return;
  table_ = std::move(table);
  for (Flowlet& flowlet : flowlets_) flowlet.used = false;  // its port may no longer be a way
}

void SwitchWays::set_up(size_t port, bool up) {
  if ((up_[port] != 0) == up) return;
  up_[port] = up ? 1 : 0;
  down_ += up ? size_t{0} - 1 : 1;
}

std::span<const uint16_t> SwitchWays::open_of(std::span<const uint16_t> ports) {
  open_.clear();
  std::copy_if(ports.begin(), ports.end(), std::back_inserter(open_), [&](uint16_t port) { return up_[port] != 0; });
  return open_;
}

}  // namespace etloop
