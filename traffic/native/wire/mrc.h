// The headers of MRC (OCP Multipath Reliable Connection 1.0) <-> values. Pure: bytes in, bytes out.
// The specification was not read; layouts are those on which independent implementations agree (docs/mrc.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>

namespace etloop::wire::mrc {

inline constexpr uint16_t kUdpPort = 4971;
inline constexpr uint32_t kEndpointQpn = 2;  // of requests and responses of the endpoint, which belong to no queue pair
inline constexpr size_t kIcrcBytes = 4;

enum class Opcode : uint8_t {
  write_first = 0xC6,
  write_middle = 0xC7,
  write_last = 0xC8,
  write_last_imm = 0xC9,
  write_only = 0xCA,
  write_only_imm = 0xCB,
  acknowledge = 0xD1,
  endpoint_request = 0xD8,
  endpoint_response = 0xD9,
  sack = 0xDC,
  nack = 0xDD,
  probe = 0xDE,
};
bool is_known(uint8_t opcode);
bool is_write(Opcode opcode);
bool has_immediate(Opcode opcode);

// Reserved bits are sent as zero and ignored on receipt: values do not have them.

struct Bth {
  static constexpr size_t kBytes = 12;
  Opcode opcode{};
  uint8_t pad_bytes = 0;
  uint8_t transport_version = 0;
  uint16_t p_key = 0xFFFF;
  uint32_t dest_qpn = 0;
  bool sack_req = false;
  bool retransmitted = false;
  bool has_tseth = false;  // of a write
  uint32_t psn = 0;
  bool operator==(const Bth&) const = default;
};

struct Meth {
  static constexpr size_t kBytes = 4;
  uint16_t rqmsn = 0;  // of a write with immediate data
  uint16_t msn = 0;
  bool operator==(const Meth&) const = default;
};

struct Tseth {
  static constexpr size_t kBytes = 4;
  uint16_t tx_timestamp = 0;  // in 128 ns, or as the implementation has it when `own_unit`
  bool own_unit = false;
  uint8_t format = 1;
  bool operator==(const Tseth&) const = default;
};

// In every packet of a write: `va` of this packet, `dma_bytes` of the whole message.
struct Reth {
  static constexpr size_t kBytes = 16;
  uint64_t va = 0;
  uint32_t rkey = 0;
  uint32_t dma_bytes = 0;
  bool operator==(const Reth&) const = default;
};

struct Immediate {
  static constexpr size_t kBytes = 4;
  uint32_t value = 0;
  bool operator==(const Immediate&) const = default;
};

struct Aeth {
  static constexpr size_t kBytes = 4;
  uint8_t syndrome = 0x1F;
  uint32_t msn = 0;
  bool operator==(const Aeth&) const = default;
};

// What to do with the entropy value of the packet that a SACK answers.
enum class EntropyMark : uint8_t { none = 0, skip_once = 1, skip_always = 2 };

struct Seth {
  static constexpr size_t kBytes = 28;
  EntropyMark mark = EntropyMark::none;
  bool answers_probe = false;
  int16_t ack_psn_offset = 0;  // of the packet that caused it, from `cack_psn`; the probe's id when `answers_probe`
  uint32_t entropy = 0;        // of the same packet
  uint16_t sender_id = 0;      // spdcid and dpdcid: low bits of both queue pairs' numbers
  uint16_t receiver_id = 0;
  uint32_t cack_psn = 0;       // everything up to here has arrived
  uint8_t cc_type = 0;         // 0: NSCC
  uint8_t cc_flags = 0;
  uint8_t window_128psns = 0;  // 0: not dynamic
  int16_t sack_offset = 0;     // of the bitmap's first bit, from `cack_psn`
  uint64_t sack_bitmap = 0;    // lowest bit first; 1: has arrived, 0: not reported
  bool operator==(const Seth&) const = default;
};

struct CcState {
  static constexpr size_t kBytes = 8;
  uint16_t tx_timestamp = 0;  // echoed
  uint16_t out_of_order = 0;
  bool restore_window = false;
  uint8_t window_penalty = 0;  // 0 none, 127: one packet in a round trip
  uint32_t received_256bytes = 0;
  bool operator==(const CcState&) const = default;
};

enum class NackReason : uint8_t {
  trimmed = 0x01,
  trimmed_last_hop = 0x02,
  no_bitmap = 0x06,
  no_packet_buffer = 0x07,
  no_resource = 0x0A,
  psn_out_of_window = 0x0B,
  unexpected_event = 0x19,
};

struct Neth {
  static constexpr size_t kBytes = 20;
  NackReason reason{};
  uint8_t vendor = 0;
  uint32_t entropy = 0;
  uint16_t sender_id = 0;
  uint16_t receiver_id = 0;
  uint32_t nack_psn = 0;
  uint8_t cc_type = 2;
  uint8_t cc_flags = 0;
  uint16_t tx_timestamp = 0;  // echoed
  bool operator==(const Neth&) const = default;
};

struct Peth {
  static constexpr size_t kBytes = 16;
  uint8_t vendor = 0;
  uint16_t probe_id = 0;
  uint16_t sender_id = 0;
  uint16_t receiver_id = 0;
  uint16_t tx_timestamp = 0;
  bool own_unit = false;
  uint8_t format = 1;
  bool operator==(const Peth&) const = default;
};

enum class EndpointOp : uint8_t { port_status = 0, entropy_probe = 1 };

struct Erth {
  static constexpr size_t kBytes = 16;
  EndpointOp op{};
  uint8_t vendor = 0;
  uint32_t port_status_mask = 0;  // 1: usable
  uint16_t tx_timestamp = 0;
  bool own_unit = false;
  uint8_t format = 1;
  bool operator==(const Erth&) const = default;
};

// A requester matches it by the request's id alone: sources differ on where the operation stands.
struct Eeth {
  static constexpr size_t kBytes = 36;
  EndpointOp op{};        // bits 3:2, as two sources have it
  EndpointOp high_op{};   // bits 5:4, as the third has it; zero in what ETLoop sends
  uint16_t tx_timestamp = 0;  // echoed
  bool operator==(const Eeth&) const = default;
};

// The bytes of one header. `Header` is one of the values above.
template <typename Header>
void encode_header(const Header& header, std::span<uint8_t, Header::kBytes> out);
template <typename Header>
Header decode_header(std::span<const uint8_t, Header::kBytes> bytes);

struct Write {
  Meth meth;
  std::optional<Tseth> tseth;
  Reth reth;
  std::optional<Immediate> imm;
  uint32_t payload_bytes = 0;          // without pad
  const uint8_t* payload = nullptr;    // where it was received; null where only headers are here
  bool operator==(const Write&) const = default;
};
struct Sack {
  Seth seth;
  CcState cc_state;
  bool operator==(const Sack&) const = default;
};
using Body = std::variant<Write, Aeth, Erth, Eeth, Sack, Neth, Peth>;

struct Packet {
  Bth bth;
  Body body;
  bool operator==(const Packet&) const = default;
};
inline constexpr size_t kMaxHeaderBytes = Bth::kBytes + Eeth::kBytes;

enum class Malformed : uint8_t {
  none, too_short, transport_version, not_mrc, unknown_opcode, bad_pad, bad_length, unknown_reason,
};

// Decodes a UDP payload (BTH ... ICRC) of `datagram_bytes` bytes, of which at least the headers stand in `bytes`. Does not
// check the ICRC.
Malformed decode(std::span<const uint8_t> bytes, size_t datagram_bytes, Packet& out);

// Writes BTH and what follows up to the payload; returns the length. Which optional headers are there follows from the
// body, as do the BTH's `pad_bytes` and `has_tseth`. The opcode fits the body; `out` holds at least kMaxHeaderBytes.
size_t encode_headers(const Packet& packet, std::span<uint8_t> out);
bool body_fits(Opcode opcode, const Body& body);

// What is left of a packet that a switch cut down: as much as an answer needs.
struct CutPacket {
  Opcode opcode{};
  uint32_t dest_qpn = 0;
  uint32_t psn = 0;
  std::optional<uint16_t> tx_timestamp;  // none: the packet has none, or it was cut off
  bool operator==(const CutPacket&) const = default;
};
// Decodes the beginning of a UDP payload whose lengths and ICRC mean nothing any more.
Malformed decode_cut(std::span<const uint8_t> bytes, CutPacket& out);

}  // namespace etloop::wire::mrc
