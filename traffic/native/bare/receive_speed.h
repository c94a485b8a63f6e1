// Measures the cost of a received packet without kernel receive calls.
#pragma once

#include <cstdint>
#include <vector>

#include "base/crc32.h"

namespace etloop {

inline constexpr uint32_t kMostReceived = 1 << 16;

struct ReceiveTurn {
  crc32::Way way = crc32::Way::table;
  double packet_ns = 0;  // CPU time of the thread
};

// Process the frames of one WRITE of the pattern as a port and its core do: Ethernet, IP, ICRC, BTH, queue pair,
// acknowledgements; once per supported CRC method and turn. Empty if the message did not complete.
std::vector<ReceiveTurn> receive_speed(uint32_t path_mtu, uint32_t packets, uint32_t turns);

}  // namespace etloop
