// Cards of several planes: ports of the plan that follow each other, over all of which one queue pair sends. The core of the
// first has the ranks; local plane i leads to plane i of the peer. Where a card's addresses are numbered, those of the first
// plane come first, then as many of the second, and so on.
#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace etloop {

inline constexpr uint32_t kMostPlanes = 8;

inline const PlannedPort& port_at(const EnginePlan& plan, int32_t port) { return plan.ports[static_cast<size_t>(port)]; }

// The first plane of a port's card; of a port by itself, itself.
inline int32_t first_plane(const EnginePlan& plan, int32_t port) { return port - port_at(plan, port).plane; }

// The rate of all planes of a card together, whose first plane `port` is.
inline int64_t card_bps(const EnginePlan& plan, int32_t port) {
  int64_t sum_bps = 0;
  for (uint32_t k = 0; k < port_at(plan, port).planes; ++k) sum_bps += port_at(plan, port + static_cast<int32_t>(k)).link_bps;
  return sum_bps;
}

// The address on a plane of the card that has this address on its first plane.
inline IpAddress on_plane(const EnginePlan& plan, const IpAddress& first, uint32_t plane) {
  return plane == 0 ? first : plan.plane_addresses.at(first)[plane];
}

}  // namespace etloop
