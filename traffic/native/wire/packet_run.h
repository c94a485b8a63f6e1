// Runs of packets that leave together, from a queue pair to a port.
#pragma once

#include <cstdint>

#include "base/time.h"
#include "wire/wire.h"

namespace etloop {

// Five-tuple and traffic class opened at a port, one for each end of a queue pair.
using FlowId = uint32_t;

inline constexpr int16_t kFlowClass = -1;
inline constexpr int8_t kFlowPriority = -1;

// Marks by which switches classify a kind of packet.
struct ClassMarks {
  int16_t traffic_class = kFlowClass;  // DSCP << 2 | ECN
  int8_t priority = kFlowPriority;     // VLAN priority
};

// Bytes behind the payload: the invariant CRC of RoCEv2 and MRC after padding to words, or none.
enum class PacketTrailer : uint8_t { icrc, none };

// Packets of one queue pair that leave together. Only runs of write_middle have a count above 1: packet i has psn + i, requests
// an acknowledgement if (psn + i + 1) % ack_every == 0 (ack_every 0: never) and carries head.payload_bytes bytes of pattern.
struct PacketRun {
  FlowId flow = 0;
  wire::Packet head;
  uint32_t count = 1;
  uint32_t ack_every = 0;
  bool corrupt_icrc = false;           // send a wrong ICRC, for the receiver to detect
  bool may_wait = false;               // may be sent together with later runs of the same turn
  bool followed = false;               // the queue pair has more packets ready
  bool fills_window = false;           // the window is full behind it until an acknowledgement
  int8_t priority = kFlowPriority;     // VLAN priority of these packets, if not the flow's
  int16_t traffic_class = kFlowClass;  // traffic class of these packets, if not the flow's
  Nanos departs_ns = 0;                // earliest departure, enforced by the kernel; 0: at once
};

inline void mark(PacketRun& run, const ClassMarks& marks) {
  run.traffic_class = marks.traffic_class;
  run.priority = marks.priority;
}

inline constexpr uint32_t kNoPacket = UINT32_MAX;
// Return the PSN of the run's last packet that requests an acknowledgement, or kNoPacket.
inline uint32_t last_asked(const PacketRun& run) {
  if (run.count == 1) return run.head.ack_req ? run.head.psn : kNoPacket;
  if (run.ack_every == 0) return kNoPacket;
  const uint32_t end = run.head.psn + run.count;  // not wrapped: the count restarts when the PSN wraps
  if (end > wire::kPsnMask + 1) return wire::kPsnMask;
  const uint32_t asked_end = end - end % run.ack_every;
  return asked_end > run.head.psn ? asked_end - 1 : kNoPacket;
}

// Make the last packet of a run request an acknowledgement. In a run whose PSN wraps, the last packet before that does.
inline void ask_at_end(PacketRun& run) {
  const uint32_t end = run.head.psn + run.count;
  if (run.count == 1) {
    run.head.ack_req = true;
  } else if (end <= wire::kPsnMask + 1) {
    run.ack_every = end;
  }
}

}  // namespace etloop
