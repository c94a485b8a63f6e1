// The switch model's choice of a way: among ports that lead to a destination, by hash, chance, load or the packet's own word.
#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "switch/switch_model.h"

namespace etloop {

// A port of weight w stands w times in its group, as the members of a group in hardware do; weights are made as small as
// they can be. With equal ones nothing changes.
WayTable SwitchModel::weighted(WayTable ways) const {
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

void SwitchModel::set_ways(WayTable ways) {
  assert(ways.first.size() == ways_.first.size());
  ways = weighted(std::move(ways));
  if (ways == ways_) return;
  ways_ = std::move(ways);
  for (Flowlet& flowlet : flowlets_) flowlet.used = false;  // its port may lead there no more
}

// Those whose link is up, in their order.
std::span<const uint16_t> SwitchModel::open_ways(uint32_t destination) {
  const uint32_t first = ways_.first[destination];
  const std::span<const uint16_t> ways(ways_.ports.data() + first, ways_.first[destination + 1] - first);
  if (ports_down_ == 0) [[likely]] return ways;
  open_ways_.clear();
  std::copy_if(ways.begin(), ways.end(), std::back_inserter(open_ways_), [&](uint16_t port) { return ports_[port].up; });
  return open_ways_;
}

uint64_t SwitchModel::key_of(const Packet& packet) {
  if (config_.hash_fields == kFiveTuple) [[likely]] return packet.frame.flow_key;
  const uint64_t key = sink_.hash_key(packet.frame, config_.hash_fields);
  const bool by_port = (config_.hash_fields & bit_of(HashField::in_port)) != 0;
  return by_port ? mixed(key + packet.in_port + 1) : key;
}

// The way that drains soonest what waits in the packet's queue there; of equal ones any, for all switches that began with the
// first would send to it together.
uint16_t SwitchModel::least_to_send(std::span<const uint16_t> ways, const SwitchFrame& frame, Nanos now) {
  const size_t queue = config_.class_to_queue[config_.dscp_to_class[frame.dscp & 63]];
  const size_t first_looked = way_of(random_(), ways.size());
  uint16_t best = ways[first_looked];
  int64_t least = INT64_MAX;
  for (size_t looked = 0; looked < ways.size(); ++looked) {
    const uint16_t port = ways[(first_looked + looked) % ways.size()];
    const int64_t waiting = buffer_.lane(port, queue).queue_bytes + (ports_[port].free_ns > now ? 1 : 0);
    const int64_t to_send = waiting * slowness_[port];
    if (to_send < least) {
      least = to_send;
      best = port;
    }
  }
  return best;
}

// As flowlet tables of switches are: entries have no names, and two flows of one entry go as one. The time since the last
// packet of the entry decides whether it keeps its way.
uint16_t SwitchModel::flowlet_way(std::span<const uint16_t> ways, const Packet& packet, Nanos now) {
  Flowlet& flowlet = flowlets_[mixed(key_of(packet) + config_.seed) % kFlowlets];
  const bool goes_on = flowlet.used && now - flowlet.last_ns <= config_.flowlet_gap_ns &&
                       std::find(ways.begin(), ways.end(), flowlet.port) != ways.end();
  if (!goes_on) {
    flowlet.used = true;
    flowlet.port = config_.balancing == LoadBalancing::adaptive_flowlet ? least_to_send(ways, packet.frame, now)
                                                                        : ways[way_of(random_(), ways.size())];
  }
  flowlet.last_ns = now;
  return flowlet.port;
}

int32_t SwitchModel::route(const Packet& packet, Nanos now) {
  const SwitchFrame& frame = packet.frame;
  if (frame.destination >= config_.routes.size()) return -1;
  const std::span<const uint16_t> ways = open_ways(frame.destination);
  if (ways.empty()) return -1;
  if (ways.size() == 1) return ways[0];
  switch (config_.balancing) {
    case LoadBalancing::ecmp: return ways[way_of(mixed(key_of(packet) + mixed_seed_), ways.size())];
    case LoadBalancing::spray: return ways[way_of(random_(), ways.size())];
    case LoadBalancing::structured: {
      const uint32_t field = uint32_t{frame.entropy} >> config_.entropy_shift & ((1U << config_.entropy_bits) - 1);
      return ways[field % ways.size()];
    }
    case LoadBalancing::adaptive: return least_to_send(ways, frame, now);
    case LoadBalancing::flowlet:
    case LoadBalancing::adaptive_flowlet: return flowlet_way(ways, packet, now);
  }
  return -1;
}

}  // namespace etloop
