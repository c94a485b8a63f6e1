// Chooses a packet's egress port among the ports towards its destination: by hash, at random, by load or by the packet's entropy.
// Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "switch/fabric_routes.h"
#include "switch/switch_config.h"

namespace etloop {

// SplitMix64 (Steele, Lea, Flood 2014).
struct SwitchRandom {
  uint64_t state = 0;
  uint64_t operator()() { return mixed(state += 0x9E3779B97F4A7C15); }
};

class SwitchWays {
 public:
  // `config` must outlive this. Starts with its routes.
  explicit SwitchWays(const SwitchConfig& config);

  // Replace the ways; same number of destinations.
  void set(const WayTable& ways);
  void set_up(size_t port, bool up);
  // Ports to a destination with links up, each repeated by its weight. Valid until the next call.
  std::span<const uint16_t> to(uint32_t destination) {
    if (destination >= table_.groups.size()) return {};
    const Group group = table_.groups[destination];
    return open({table_.ports.data() + group.first, group.size});
  }
  // Those of `ports` with links up.
  std::span<const uint16_t> open(std::span<const uint16_t> ports) {
    if (down_ == 0) [[likely]] return ports;
    return open_of(ports);
  }

  // Choose one of `ways`, which is not empty. `key` gives the packet's hash key; `load(port)` the bytes queued there in its
  // queue.
  template <typename Key, typename Load>
  uint16_t choose(std::span<const uint16_t> ways, uint16_t entropy, Nanos now, SwitchRandom& random, Key key, Load load) {
    if (ways.size() == 1) return ways[0];
    switch (config_.ways.balancing) {
      case LoadBalancing::ecmp: return ways[way_of(mixed(key() + mixed_seed_), ways.size())];
      case LoadBalancing::spray: return ways[way_of(random(), ways.size())];
      case LoadBalancing::structured: {
        const uint32_t field = uint32_t{entropy} >> config_.ways.entropy_shift;
        return ways[(field & ((1U << config_.ways.entropy_bits) - 1)) % ways.size()];
      }
      case LoadBalancing::adaptive: return soonest(ways, random, load);
      case LoadBalancing::flowlet:
      case LoadBalancing::adaptive_flowlet: {
        Flowlet& flowlet = flowlets_[mixed(key() + config_.seed) % kFlowlets];
        if (!flowlet.goes_on(ways, now, config_.ways.flowlet_gap_ns)) {
          const bool adapts = config_.ways.balancing == LoadBalancing::adaptive_flowlet;
          flowlet.port = adapts ? soonest(ways, random, load) : ways[way_of(random(), ways.size())];
          flowlet.used = true;
        }
        flowlet.last_ns = now;
        return flowlet.port;
      }
    }
    return ways[0];
  }

 private:
  std::span<const uint16_t> open_of(std::span<const uint16_t> ports);
  static constexpr size_t kFlowlets = 1 << 14;
  static constexpr int64_t kSlowness = 256;
  static constexpr int64_t kMostSlowness = 1 << 24;
  // An entry of the flowlet table. As in switches it has no tag: flows of one entry share it.
  struct Flowlet {
    Nanos last_ns = 0;
    uint16_t port = 0;
    bool used = false;

    bool goes_on(std::span<const uint16_t> ways, Nanos now, Nanos gap_ns) const {
      return used && now - last_ns <= gap_ns && std::find(ways.begin(), ways.end(), port) != ways.end();
    }
  };

  // The way that drains the packet's queue first; a random one among equals, as switches that always start with the first would
  // all send to it.
  template <typename Load>
  uint16_t soonest(std::span<const uint16_t> ways, SwitchRandom& random, Load load) const {
    const size_t first = way_of(random(), ways.size());
    uint16_t best = ways[first];
    int64_t least = INT64_MAX;
    for (size_t looked = 0; looked < ways.size(); ++looked) {
      const uint16_t port = ways[(first + looked) % ways.size()];
      const int64_t to_send = load(port) * slowness_[port];
      if (to_send < least) {
        least = to_send;
        best = port;
      }
    }
    return best;
  }
  struct Group {
    uint32_t first = 0;  // of `ports`
    uint32_t size = 0;

    bool operator==(const Group&) const = default;
  };
  // The ways as used: consecutive destinations with the same ways share their ports, so that packets read few cache lines.
  struct Table {
    std::vector<Group> groups;    // by destination
    std::vector<uint16_t> ports;  // each repeated by its weight

    bool operator==(const Table&) const = default;
  };
  Table grouped(const WayTable& ways) const;

  const SwitchConfig& config_;
  Table table_;
  std::vector<uint8_t> up_;         // by port
  size_t down_ = 0;                 // number of ports down
  std::vector<uint16_t> open_;      // last result of `open`, while links are down
  std::vector<int64_t> slowness_;   // by port, `kSlowness` for the fastest
  std::vector<Flowlet> flowlets_;
  uint64_t mixed_seed_;
};

}  // namespace etloop
