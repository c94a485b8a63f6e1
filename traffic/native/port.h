// The seam between the engine's pure layers and whatever carries its packets: the kernel's UDP sockets or virtual time.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "etloop_cc.h"
#include "wire.h"

namespace etloop {

using Nanos = int64_t;
inline constexpr Nanos kNever = INT64_MAX;

// A five-tuple and traffic class opened at a port; every queue pair end has one.
using FlowId = uint32_t;

inline constexpr int16_t kFlowClass = -1;

// Packets of one queue pair that leave together. Only write_middle comes in counts above 1: then packet i has
// psn + i, asks for an acknowledgement where (psn + i + 1) % ack_every == 0 (ack_every 0: never), and all have
// head.payload_bytes bytes of pattern.
struct PacketRun {
  FlowId flow = 0;
  wire::Packet head;
  uint32_t count = 1;
  uint32_t ack_every = 0;
  bool spoil_icrc = false;              // on purpose: the receiver must find it
  int16_t traffic_class = kFlowClass;  // another than the flow's, for these packets alone
  Nanos departs_ns = 0;  // not before, and the kernel sees to it; 0: at once
};

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

// would_block: nothing leaves now; held: this cannot, but what answers the peer still may (a card's queue is full, or its
// priority is paused).
enum class TxResult : uint8_t { sent, would_block, held, failed };

// One received packet: bytes from BTH to ICRC, and what the port knows of the datagram.
struct Datagram {
  std::span<const uint8_t> bytes;
  uint32_t datagram_bytes = 0;
  IpAddress src_ip = {};
  uint16_t src_port = 0;
  uint16_t address = 0;  // index of the local address it came to
  uint8_t traffic_class = 0;
  std::span<const etloop_cc_hop> hops;  // telemetry that an acknowledgement brings back; where the network gives any
};

class PortSink {
 public:
  virtual ~PortSink() = default;
  // `arrived_ns`: when the packet reached this host, as near to the wire as the port can tell.
  virtual void on_datagram(const Datagram& datagram, Nanos arrived_ns) = 0;
};

class TxPort {
 public:
  virtual ~TxPort() = default;
  // Takes the whole run or nothing.
  virtual TxResult send(const PacketRun& run) = 0;
  // Whether `send` would hold a run of data of this flow, and will ask for it as if it had. Answering no costs a try.
  virtual bool holds(FlowId) { return false; }
  // Why the last send failed, for people.
  virtual std::string last_error() const = 0;
  // The most packets of a full-MTU write_middle run that one send takes.
  virtual uint32_t max_run(uint32_t payload_bytes) const = 0;
  // How long before its departure a run may be handed over, with `departs_ns` said; 0: only when it is due.
  virtual Nanos departure_horizon_ns() const { return 0; }
};

}  // namespace etloop
