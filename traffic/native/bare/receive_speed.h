// For measurements: what a received packet costs when nothing is read from the kernel.
#pragma once

#include <cstdint>
#include <vector>

#include "base/crc32.h"

namespace etloop {

inline constexpr uint32_t kMostReceived = 1 << 16;

struct ReceiveTurn {
  crc32::Way way = crc32::Way::table;
  double packet_ns = 0;  // of the thread's processor time
};

// One WRITE of the pattern in so many packets, made into frames and taken in as a port and its core do: Ethernet, IP, ICRC,
// BTH, queue pair, acknowledgements. Every way to hash that is here takes its turn. Empty if the message did not come of it.
std::vector<ReceiveTurn> receive_speed(uint32_t path_mtu, uint32_t packets, uint32_t turns);

}  // namespace etloop
