#include "fabric_event.h"

#include <algorithm>

#include "switch_model.h"

namespace etloop {

Nanos event_spacing_ns(std::span<const SwitchConfig> switches) {
  constexpr int64_t kLongFrameBytes = 4200;  // of a packet of 4096 payload bytes
  constexpr int64_t kEventsPerFrame = 2;     // at a port: it comes, and the line is free again
  Nanos soonest_ns = kNever;
  Nanos longest_ns = 1;
  int64_t ports = 1;
  for (const SwitchConfig& one : switches) {
    ports += static_cast<int64_t>(one.ports.size());
    for (const SwitchPortConfig& port : one.ports) {
      const Nanos frame_ns = line_ns(kLongFrameBytes, port.rate_bps);
      soonest_ns = std::min(soonest_ns, frame_ns);
      longest_ns = std::max(longest_ns, 2 * frame_ns + port.propagation_ns + one.latency_ns);
    }
  }
  const Nanos reach_ns = longest_ns / static_cast<Nanos>(FabricEvents::kSlots);
  return std::max(soonest_ns / (ports * kEventsPerFrame), reach_ns);
}

}  // namespace etloop
