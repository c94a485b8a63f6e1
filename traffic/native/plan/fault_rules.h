// Faults that an endpoint injects, as contract/model/transport.py describes them. Values only.
#pragma once

#include <cstdint>

namespace etloop {

enum class FaultAction : uint8_t {
  drop, duplicate, reorder, delay, corrupt_icrc, mark_ce, send_nak, send_rnr, send_cnp, trim,
};
inline constexpr uint32_t kFaultActions = 10;
enum class FaultDirection : uint8_t { sent, received };
enum class FaultPackets : uint8_t { any, data, clear_to_send, ack, nak, cnp, request };

// A rule with this value selects connections of all communicators; -1 means point-to-point connections.
inline constexpr int32_t kAnyCommunicator = -2;

struct FaultRule {
  FaultAction action = FaultAction::drop;
  FaultDirection direction = FaultDirection::sent;
  FaultPackets packets = FaultPackets::any;
  int32_t src_rank = -1;    // of the connection; -1: any
  int32_t dst_rank = -1;
  int32_t queue_pair = -1;  // of the connection; -1: all
  int32_t communicator = kAnyCommunicator;
  int32_t channel = -1;     // -1: any
  int32_t entropy_value = -1;  // which of those between two addresses, from 0; -1: any
  uint64_t first = 1;       // packets are numbered from 1, for every queue pair end and rule by itself
  uint64_t last = 0;        // 0: no end
  uint64_t every = 1;
  uint32_t chance_per_million = 1'000'000;
  int64_t delay_ns = 0;
  uint32_t behind_packets = 0;
  uint64_t seed = 0;
};

// Priority flow control that a port sends unasked: a pause of `quanta` (512 bit times each) for one priority, `count`
// times (0: until the end) at `first_ns` after the start of the run and `every_ns` after one another.
struct PauseRule {
  uint8_t priority = 0;
  uint16_t quanta = 0;
  int64_t first_ns = 0;
  int64_t every_ns = 0;
  uint64_t count = 0;
};

}  // namespace etloop
