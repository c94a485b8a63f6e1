// Which queue pairs of a port carry short messages only: where calls are dear, such messages go before long ones, because on a
// NIC they would soon have their turn. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "plan/plan.h"

namespace etloop {

inline constexpr uint32_t kShortPackets = 16;  // of a short message at most: about one segmented send
// For so long after a short message, the next one is likely.
inline constexpr Nanos kShortMemoryNs = 100'000'000;

inline uint32_t short_bytes(const TransportSettings& transport) { return kShortPackets * transport.path_mtu_bytes; }

// Numbers at which queue pairs of an address begin or end to be short, in rising order: those from the first on are, those from
// the second on are not, and so on. {}: none is short; {0}: all are.
using ShortBounds = std::vector<uint32_t>;

// Return the bounds of each address of a port. The queue pairs of a connection are short if no op on it has more than
// `short_bytes`, and if their datagrams share no source address and UDP port with long ones. Requires a plan that passed
// `validate`.
std::vector<ShortBounds> short_bounds(const EnginePlan& plan, int32_t port);

}  // namespace etloop
