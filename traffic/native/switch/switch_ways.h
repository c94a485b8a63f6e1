// Which of the ports that lead to a destination a packet takes: by hash, chance, load or the packet's own word. Pure.
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
  // `config` must outlive this. Ways are those of its routes.
  explicit SwitchWays(const SwitchConfig& config);

  // In place of those of before, of as many destinations.
  void set(WayTable ways);
  void set_up(size_t port, bool up);
  // The ports to a destination whose link is up, each as often as its weight says. Valid until the next call.
  std::span<const uint16_t> to(uint32_t destination);
  // Those of `ports` whose link is up.
  std::span<const uint16_t> open(std::span<const uint16_t> ports);

  // One of `ways`, of which there are some. `key` gives the packet's hash key; `load(port)` what waits there in its queue.
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
  static constexpr size_t kFlowlets = 1 << 14;
  static constexpr int64_t kSlowness = 256;
  static constexpr int64_t kMostSlowness = 1 << 24;
  // An entry of a flowlet table. As in switches it has no name, and two flows of one entry go as one.
  struct Flowlet {
    Nanos last_ns = 0;
    uint16_t port = 0;
    bool used = false;

    bool goes_on(std::span<const uint16_t> ways, Nanos now, Nanos gap_ns) const {
      return used && now - last_ns <= gap_ns && std::find(ways.begin(), ways.end(), port) != ways.end();
    }
  };

  // The way that is through first with what waits in the packet's queue; of equal ones any, for all switches that began with
  // the first would send to it together.
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
  WayTable weighted(WayTable ways) const;

  const SwitchConfig& config_;
  WayTable table_;
  std::vector<uint8_t> up_;         // by port
  size_t down_ = 0;                 // of them
  std::vector<uint16_t> open_;      // of the last question, while links are down
  std::vector<int64_t> slowness_;   // by port, `kSlowness` for the fastest
  std::vector<Flowlet> flowlets_;
  uint64_t mixed_seed_;
};

}  // namespace etloop
