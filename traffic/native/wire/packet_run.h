// Packets that leave together, and the flow they belong to: what queue pairs hand to whatever carries packets.
#pragma once

#include <cstdint>

#include "base/time.h"
#include "wire/wire.h"

namespace etloop {

// A five-tuple and traffic class opened at a port; every queue pair end has one.
using FlowId = uint32_t;

inline constexpr int16_t kFlowClass = -1;
inline constexpr int8_t kFlowPriority = -1;

// What devices sort a kind of packet by.
struct ClassMarks {
  int16_t traffic_class = kFlowClass;  // DSCP << 2 | ECN
  int8_t priority = kFlowPriority;     // of the VLAN tag
};

// What closes a packet behind its payload: RoCEv2's and MRC's invariant CRC, before which the payload is padded to words, or
// nothing.
enum class PacketTrailer : uint8_t { icrc, none };

// Packets of one queue pair that leave together. Only write_middle comes in counts above 1: then packet i has
// psn + i, asks for an acknowledgement where (psn + i + 1) % ack_every == 0 (ack_every 0: never), and all have
// head.payload_bytes bytes of pattern.
struct PacketRun {
  FlowId flow = 0;
  wire::Packet head;
  uint32_t count = 1;
  uint32_t ack_every = 0;
  bool corrupt_icrc = false;              // on purpose: the receiver must find it
  bool may_wait = false;                  // for others of the same turn, to leave with them
  bool followed = false;                  // by something else of its queue pair that is there already
  bool fills_window = false;              // nothing of its queue pair may leave behind it before an acknowledgement
  int8_t priority = kFlowPriority;        // of the VLAN tag; another than the flow's, for these packets alone
  int16_t traffic_class = kFlowClass;     // likewise
  Nanos departs_ns = 0;  // not before, and the kernel sees to it; 0: at once
};

inline void mark(PacketRun& run, const ClassMarks& marks) {
  run.traffic_class = marks.traffic_class;
  run.priority = marks.priority;
}

inline constexpr uint32_t kNoPacket = UINT32_MAX;
// The last packet of a run that asks for an acknowledgement; kNoPacket: none does.
inline uint32_t last_asked(const PacketRun& run) {
  if (run.count == 1) return run.head.ack_req ? run.head.psn : kNoPacket;
  if (run.ack_every == 0) return kNoPacket;
  const uint32_t end = run.head.psn + run.count;  // not wrapped: asking restarts where the numbers do
  if (end > wire::kPsnMask + 1) return wire::kPsnMask;
  const uint32_t asked_end = end - end % run.ack_every;
  return asked_end > run.head.psn ? asked_end - 1 : kNoPacket;
}

// Makes the last packet of a run ask, where its numbers are not wrapped; else the last before they begin anew does.
inline void ask_at_end(PacketRun& run) {
  const uint32_t end = run.head.psn + run.count;
  if (run.count == 1) {
    run.head.ack_req = true;
  } else if (end <= wire::kPsnMask + 1) {
    run.ack_every = end;
  }
}

}  // namespace etloop
