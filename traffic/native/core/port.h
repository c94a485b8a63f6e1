// Interface between the engine's pure layers and the packet I/O: kernel UDP sockets, other ports, or virtual time.
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

// would_block: no packet can leave now; held: this one cannot (a card's queue is full, or its priority is paused), but answers to
// the peer may.
enum class TxResult : uint8_t { sent, would_block, held, failed };

// One received packet: the bytes from BTH to ICRC, and the port's metadata.
struct Datagram {
  std::span<const uint8_t> bytes;
  uint32_t datagram_bytes = 0;
  IpAddress src_ip = {};
  uint16_t src_port = 0;
  uint16_t address = 0;  // index of the local address it arrived at, over all planes of a card
  uint8_t traffic_class = 0;
  bool trimmed = false;   // trimmed by a switch: `bytes` is the remainder; its lengths and checksums are meaningless
  std::span<const etloop_cc_hop> hops;  // in-band telemetry echoed by an acknowledgement, if the network has any
};

// One packet of a transport other than RoCEv2: the headers are bytes; the port adds payload and trailer.
struct BuiltPacket {
  FlowId flow = 0;
  uint16_t src_port = 0;  // replaces the flow's port
  uint32_t dest_qpn = 0;
  PacketTrailer trailer = PacketTrailer::icrc;
  bool answers = false;   // sent even while data waits for the card
  bool corrupt_icrc = false;  // fault injection; only with an ICRC trailer
  ClassMarks marks;
  std::span<const uint8_t> headers;
  uint32_t payload_bytes = 0;
  const uint8_t* payload = nullptr;  // nullptr: the payload pattern

  size_t datagram_bytes() const {
    if (trailer == PacketTrailer::none) return headers.size() + payload_bytes;
    return headers.size() + (payload_bytes + 3) / 4 * 4 + wire::kIcrcBytes;
  }
};

// Most bytes of a packet that differ from the payload pattern: headers and content of a grant, in the transport with the longest.
inline constexpr size_t kMostStoredBytes = 120;

class PortSink {
 public:
  virtual ~PortSink() = default;
  // `arrived_ns`: arrival time at this host, as near to the wire as the port can measure.
  virtual void on_datagram(const Datagram& datagram, Nanos arrived_ns) = 0;
  // The packets that follow were read from the host's queue at this time.
  virtual void on_read(Nanos) {}
};

class TxPort {
 public:
  virtual ~TxPort() = default;
  // Send the whole run or nothing. Runs marked `may_wait` have left by the next other call, or the end of the turn.
  virtual TxResult send(const PacketRun& run) = 0;
  // Send one built packet; ports that support RoCEv2 only fail.
  virtual TxResult send_built(const BuiltPacket&) { return TxResult::failed; }
  // Whether `send` would return `held` for data of this flow; registers interest in the same way, at no cost of a packet.
  virtual bool holds(FlowId) { return false; }
  // For a card of several planes, as bit masks: planes whose link is up, and planes that accept a packet of a queue pair with
  // such marks; `first` is its flow on the first plane. 0: all would hold it, and interest is registered.
  virtual uint32_t planes_up() const { return ~uint32_t{0}; }
  virtual uint32_t open_planes([[maybe_unused]] FlowId first, const ClassMarks&) { return ~uint32_t{0}; }
  // Reason of the last failed send, for error messages.
  virtual std::string last_error() const = 0;
  // Most packets of a full-MTU write_middle run per send.
  virtual uint32_t max_run(uint32_t payload_bytes) const = 0;
  // How long before its departure a run may be handed over with `departs_ns` set; 0: not before its departure time.
  virtual Nanos departure_horizon_ns() const { return 0; }
};

}  // namespace etloop
