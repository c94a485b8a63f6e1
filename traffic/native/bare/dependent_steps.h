// Small dependent operations without a protocol: the floor for collectives of few bytes over two ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ip_address.h"
#include "base/result.h"

namespace etloop {

struct DependentSteps {
  IpAddress src_ip = {};
  IpAddress dst_ip = {};
  uint16_t udp_port = 0;  // at both ends
  uint32_t datagram_bytes = 64;
  uint32_t operations = 0;
  uint32_t steps = 1;               // of an operation; 1: an exchange, 2: a ring over two ranks
  bool waits_acknowledged = false;  // an operation ends with an acknowledgement, which is awaited
};

// Carry out `operations`, busy-polling, like the other end: each step sends a datagram and awaits the peer's of the same step.
// Returns the times of the operations in nanoseconds, in order. Fails if the peer is silent for 2 s.
Result<std::vector<int64_t>> dependent_steps(const DependentSteps& settings);

}  // namespace etloop
