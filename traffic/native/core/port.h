// The seam between the engine's pure layers and whatever carries its packets: the kernel's UDP sockets or virtual time.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/ip_address.h"
#include "base/time.h"
#include "cc/etloop_cc.h"
#include "wire/packet_run.h"

namespace etloop {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Nanos now() = 0;
};

// would_block: nothing leaves now; held: this cannot, but what answers the peer still may (a card's queue is full, or its
// priority is paused).
enum class TxResult : uint8_t { sent, would_block, held, failed };

// One received packet: bytes from BTH to ICRC, and what the port knows of the datagram.
struct Datagram {
  std::span<const uint8_t> bytes;
  uint32_t datagram_bytes = 0;
  IpAddress src_ip = {};
  uint16_t src_port = 0;
  uint16_t address = 0;  // index of the local address it came to, over all planes of a card
  uint8_t traffic_class = 0;
  bool trimmed = false;   // a switch cut it down: `bytes` is what is left, and no length or check of it means anything
  std::span<const etloop_cc_hop> hops;  // telemetry that an acknowledgement brings back; where the network gives any
};

// One packet of another transport than RoCEv2: its headers as bytes; the port adds payload and trailer.
struct BuiltPacket {
  FlowId flow = 0;
  uint16_t src_port = 0;  // instead of the flow's
  uint32_t dest_qpn = 0;
  PacketTrailer trailer = PacketTrailer::icrc;
  bool answers = false;   // leaves even where data waits for the card
  bool corrupt_icrc = false;  // on purpose; where there is one
  ClassMarks marks;
  std::span<const uint8_t> headers;
  uint32_t payload_bytes = 0;
  const uint8_t* payload = nullptr;  // nullptr: the pattern

  size_t datagram_bytes() const {
    if (trailer == PacketTrailer::none) return headers.size() + payload_bytes;
    return headers.size() + (payload_bytes + 3) / 4 * 4 + wire::kIcrcBytes;
  }
};

// The most bytes of a packet that differ from the pattern: a grant's headers and content, over the transport with the longest.
inline constexpr size_t kMostStoredBytes = 120;

class PortSink {
 public:
  virtual ~PortSink() = default;
  // `arrived_ns`: when the packet reached this host, as near to the wire as the port can tell.
  virtual void on_datagram(const Datagram& datagram, Nanos arrived_ns) = 0;
};

class TxPort {
 public:
  virtual ~TxPort() = default;
  // Takes the whole run or nothing. What may wait has left when the port is asked for something else, or its turn is over.
  virtual TxResult send(const PacketRun& run) = 0;
  // Takes the packet or not; ports that carry RoCEv2 alone fail.
  virtual TxResult send_built(const BuiltPacket&) { return TxResult::failed; }
  // Whether `send` would hold a run of data of this flow, and will ask for it as if it had. Answering no costs a try.
  virtual bool holds(FlowId) { return false; }
  // Of a card of several planes, as bits: those whose links are up, and those that would take a packet of a queue pair with such
  // marks, `first` being its flow on the first plane. None: it would be held on all, and will be asked for again.
  virtual uint32_t planes_up() const { return ~uint32_t{0}; }
  virtual uint32_t open_planes([[maybe_unused]] FlowId first, const ClassMarks&) { return ~uint32_t{0}; }
  // Why the last send failed, for people.
  virtual std::string last_error() const = 0;
  // The most packets of a full-MTU write_middle run that one send takes.
  virtual uint32_t max_run(uint32_t payload_bytes) const = 0;
  // How long before its departure a run may be handed over, with `departs_ns` said; 0: only when it is due.
  virtual Nanos departure_horizon_ns() const { return 0; }
};

}  // namespace etloop
