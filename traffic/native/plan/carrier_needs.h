// Requirements of one port's share of a plan on a network card, known before the first message: the number of ends, the size of
// messages, and whether ops are closed by atomics. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plan/plan.h"

namespace etloop {

struct CarrierNeeds {
  size_t sending_ends = 0;
  size_t receiving_ends = 0;
  size_t sending_connections = 0;
  size_t receiving_connections = 0;
  int64_t largest_message_bytes = 0;  // of payload on the wire
  bool one_sided = false;             // some op writes without grants and is closed by FETCH_ADD
};

// Requires a plan that passed `validate`.
CarrierNeeds carrier_needs(const EnginePlan& plan, int32_t port);

}  // namespace etloop
