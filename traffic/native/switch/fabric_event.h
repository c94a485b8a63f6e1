// What is due in a fabric, of its switches and of the cards around them, in one order.
#pragma once

#include <cstdint>
#include <span>

#include "base/time_wheel.h"
#include "switch/switch_config.h"

namespace etloop {

// `port`, `lane`, `number` and `kind` are its owner's, which alone reads them.
struct FabricEvent {
  Nanos at_ns;
  uint64_t order;
  uint32_t number;
  uint16_t port;
  uint8_t lane;
  uint8_t kind;
};
static_assert(sizeof(FabricEvent) == 24);

using FabricEvents = TimeWheel<FabricEvent>;

// How long slots may be for these switches: so long that what follows from an event is within reach, unless that is many
// events where all ports are busy.
Nanos event_spacing_ns(std::span<const SwitchConfig> switches);

}  // namespace etloop
