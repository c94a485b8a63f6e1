#include "switch/switch_ways.h"

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
  table_ = weighted(std::move(ways));
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
WayTable SwitchWays::weighted(WayTable ways) const {
  const auto differs = [&](const SwitchPortConfig& port) { return port.weight != config_.ports[0].weight; };
  if (std::none_of(config_.ports.begin(), config_.ports.end(), differs)) return ways;
  WayTable out;
  for (size_t destination = 0; destination + 1 < ways.first.size(); ++destination) {
    out.first.push_back(static_cast<uint32_t>(out.ports.size()));
    const std::span<const uint16_t> group(ways.ports.data() + ways.first[destination],
                                          ways.first[destination + 1] - ways.first[destination]);
    uint16_t common = 0;
    for (const uint16_t port : group) common = std::gcd(common, config_.ports[port].weight);
    for (const uint16_t port : group) {
      out.ports.insert(out.ports.end(), static_cast<size_t>(config_.ports[port].weight / common), port);
    }
  }
  out.first.push_back(static_cast<uint32_t>(out.ports.size()));
  return out;
}

void SwitchWays::set(WayTable ways) {
  assert(ways.first.size() == table_.first.size());
  ways = weighted(std::move(ways));
  if (ways == table_) return;
  table_ = std::move(ways);
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
