// Events of a fabric, of its switches and of the cards around them, in one order.
#pragma once

#include <cstdint>
#include <span>

#include "base/time_wheel.h"
#include "switch/switch_config.h"

namespace etloop {

// `port`, `lane`, `number` and `kind` have a meaning only for the owner.
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

// Length of a time slot for these switches: long enough that the events that follow from an event are within reach, unless a slot
// then has many events when all ports are busy.
Nanos event_spacing_ns(std::span<const SwitchConfig> switches);

}  // namespace etloop
