#include "switch/fabric_event.h"

#include <algorithm>

#include "switch/switch_model.h"

namespace etloop {

Nanos event_spacing_ns(std::span<const SwitchConfig> switches) {
  constexpr int64_t kLongFrameBytes = 4200;  // a packet with 4096 payload bytes
  constexpr double kEventsPerFrame = 2;      // per frame at a port: arrival, and end of transmission
  constexpr double kMostEventsPerSlot = 4;
  Nanos longest_ns = 1;
  double events_per_ns = 0;
  for (const SwitchConfig& config : switches) {
    for (const SwitchPortConfig& port : config.ports) {
      const Nanos frame_ns = line_ns(kLongFrameBytes, port.rate_bps);
      events_per_ns += kEventsPerFrame / static_cast<double>(frame_ns);
      longest_ns = std::max(longest_ns, 2 * frame_ns + port.propagation_ns + config.latency_ns);
    }
  }
  if (events_per_ns == 0) return 1;
  const Nanos reach_ns = longest_ns / static_cast<Nanos>(FabricEvents::kSlots);
  return std::min(reach_ns, static_cast<Nanos>(kMostEventsPerSlot / events_per_ns));
}

}  // namespace etloop
