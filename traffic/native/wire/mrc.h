// Headers of MRC (OCP Multipath Reliable Connection 1.0) <-> values. Pure: bytes in, bytes out.
// Written without access to the specification: layouts are those on which independent implementations agree (docs/mrc.md). Field
// names are the specification's, where it has more than a letter. Enumerators are shown to users with blanks for underscores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>

namespace etloop::wire::mrc {

inline constexpr uint16_t kUdpPort = 4971;
inline constexpr uint32_t kEndpointQpn = 2;  // endpoint requests and responses, which belong to no queue pair
inline constexpr size_t kIcrcBytes = 4;

enum class Opcode : uint8_t {
  write_first = 0xC6,
  write_middle = 0xC7,
  write_last = 0xC8,
  write_last_imm = 0xC9,
  write_only = 0xCA,
  write_only_imm = 0xCB,
  ack = 0xD1,
  endpoint_request = 0xD8,
  endpoint_response = 0xD9,
  sack = 0xDC,
  nack = 0xDD,
  probe = 0xDE,
};
bool is_known(uint8_t opcode);
bool is_write(Opcode opcode);
bool has_immediate(Opcode opcode);

struct Bth {
  static constexpr const char* kName = "bth";
  static constexpr size_t kBytes = 12;
  Opcode opcode{};
  uint8_t pad = 0;
  uint8_t tver = 0;
  uint16_t p_key = 0xFFFF;
  uint32_t dest_qpn = 0;
  bool sack_req = false;
  bool rtx = false;
  bool ts = false;
  uint32_t psn = 0;
  bool operator==(const Bth&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    bits.field(8, header.opcode, "opcode", "Opcode");
    bits.reserved(2);
    bits.field(2, header.pad, "pad", "Pad bytes");
    bits.field(4, header.tver, "tver", "Transport version");
    bits.field(16, header.p_key, "p_key", "Partition key");
    bits.reserved(8);
    bits.field(24, header.dest_qpn, "dest_qpn", "Destination queue pair");
    bits.field(1, header.sack_req, "sack_req", "SACK requested");
    bits.reserved(1);
    bits.field(1, header.rtx, "rtx", "Retransmission");
    bits.field(1, header.ts, "ts", "TSETH follows");
    bits.reserved(4);
    bits.field(24, header.psn, "psn", "Packet sequence number");
  }
};

struct Meth {
  static constexpr const char* kName = "meth";
  static constexpr size_t kBytes = 4;
  uint16_t rqmsn = 0;  // writes with immediate data
  uint16_t msn = 0;
  bool operator==(const Meth&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    bits.field(16, header.rqmsn, "rqmsn", "Receive queue message sequence number");
    bits.field(16, header.msn, "msn", "Message sequence number");
  }
};

// The timestamp that a packet carries, and that its answer echoes.
constexpr void lay_out_timestamp(auto& bits, auto& header) {
  bits.field(16, header.tx_timestamp, "tx_timestamp", "Transmit timestamp, in 128 ns unless tsr is set");
  bits.field(1, header.tsr, "tsr", "Timestamp has a unit of the implementation");
  bits.reserved(11);
  bits.field(4, header.ftype, "ftype", "Timestamp format");
}

struct Tseth {
  static constexpr const char* kName = "tseth";
  static constexpr size_t kBytes = 4;
  uint16_t tx_timestamp = 0;
  bool tsr = false;
  uint8_t ftype = 1;
  bool operator==(const Tseth&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) { lay_out_timestamp(bits, header); }
};

// Present in every packet of a write: `va` of this packet, `dma_bytes` of the whole message.
struct Reth {
  static constexpr const char* kName = "reth";
  static constexpr size_t kBytes = 16;
  uint64_t va = 0;
  uint32_t rkey = 0;
  uint32_t dma_bytes = 0;
  bool operator==(const Reth&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    bits.field(64, header.va, "va", "Virtual address of this packet's payload");
    bits.field(32, header.rkey, "rkey", "Remote key");
    bits.field(32, header.dma_bytes, "dma_bytes", "DMA length: bytes of the message");
  }
};

struct Immediate {
  static constexpr const char* kName = "immdt";
  static constexpr size_t kBytes = 4;
  uint32_t imm = 0;
  bool operator==(const Immediate&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) { bits.field(32, header.imm, "imm", "Immediate data"); }
};

struct Aeth {
  static constexpr const char* kName = "aeth";
  static constexpr size_t kBytes = 4;
  uint8_t syndrome = 0x1F;
  uint32_t msn = 0;
  bool operator==(const Aeth&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    bits.field(8, header.syndrome, "syndrome", "Syndrome");
    bits.field(24, header.msn, "msn");
  }
};

// The sender's treatment of the entropy value of the acknowledged packet.
enum class EntropyMark : uint8_t { none = 0, skip_once = 1, skip_always = 2 };

// The queue pairs of an answer or a probe, by the low bits of their numbers.
constexpr void lay_out_queue_pairs(auto& bits, auto& header) {
  bits.field(16, header.spdcid, "spdcid", "Source queue pair, low bits");
  bits.field(16, header.dpdcid, "dpdcid", "Destination queue pair, low bits");
}

struct Seth {
  static constexpr const char* kName = "seth";
  static constexpr size_t kBytes = 28;
  EntropyMark mark = EntropyMark::none;
  bool answers_probe = false;
  int16_t ack_psn_offset = 0;  // without `answers_probe`
  uint16_t probe_id = 0;       // with `answers_probe`
  uint32_t entropy = 0;
  uint16_t spdcid = 0;
  uint16_t dpdcid = 0;
  uint32_t cack_psn = 0;
  uint8_t cc_type = 0;  // 0: NSCC
  uint8_t cc_flags = 0;
  uint8_t mpr = 0;  // 0: not dynamic
  int16_t sack_offset = 0;
  uint64_t sack_bitmap = 0;  // a clear bit makes no statement about its PSN
  bool operator==(const Seth&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    bits.reserved(4 + 5);  // type, next header
    bits.field(2, header.mark, "mark", "Entropy mark");
    bits.reserved(3);
    bits.field(1, header.answers_probe, "answers_probe", "Answers a probe");
    bits.reserved(1);
    if (header.answers_probe) {
      bits.field(16, header.probe_id, "probe_id", "Probe identifier");
    } else {
      bits.field(16, header.ack_psn_offset, "ack_psn_offset", "PSN acknowledged, relative to the cumulative PSN");
    }
    bits.field(32, header.entropy, "entropy", "Entropy value of the packet answered");
    lay_out_queue_pairs(bits, header);
    bits.reserved(8);
    bits.field(24, header.cack_psn, "cack_psn", "Cumulative PSN: all up to here were received");
    bits.field(4, header.cc_type, "cc_type", "Congestion control type");
    bits.field(4, header.cc_flags, "cc_flags", "Congestion control flags");
    bits.field(8, header.mpr, "mpr", "Maximum PSN range, in 128 PSNs");
    bits.field(16, header.sack_offset, "sack_offset", "PSN of the bitmap's lowest bit, relative to the cumulative PSN");
    bits.field(64, header.sack_bitmap, "sack_bitmap", "PSNs received, lowest bit first");
  }
};

struct CcState {
  static constexpr const char* kName = "cc_state";
  static constexpr size_t kBytes = 8;
  uint16_t tx_timestamp = 0;
  uint16_t ooo_count = 0;
  bool restore_cwnd = false;
  uint8_t rcv_cwnd_pen = 0;  // 0: none, 127: one packet in a round trip
  uint32_t rcvd_bytes = 0;
  bool operator==(const CcState&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    bits.field(16, header.tx_timestamp, "tx_timestamp");
    bits.reserved(1);
    bits.field(15, header.ooo_count, "ooo_count", "Packets received out of order");
    bits.field(1, header.restore_cwnd, "restore_cwnd", "Restore the congestion window");
    bits.field(7, header.rcv_cwnd_pen, "rcv_cwnd_pen", "Receiver's congestion window penalty");
    bits.field(24, header.rcvd_bytes, "rcvd_bytes", "Bytes received, in 256 bytes");
  }
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
  static constexpr const char* kName = "neth";
  static constexpr size_t kBytes = 20;
  NackReason reason{};
  uint8_t vendor_info = 0;
  uint32_t entropy = 0;
  uint16_t spdcid = 0;
  uint16_t dpdcid = 0;
  uint32_t nack_psn = 0;
  uint8_t cc_type = 2;
  uint8_t cc_flags = 0;
  uint16_t tx_timestamp = 0;
  bool operator==(const Neth&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    bits.reserved(16);
    bits.field(8, header.reason, "reason", "NACK reason");
    bits.field(8, header.vendor_info, "vendor_info", "Vendor information");
    bits.field(32, header.entropy, "entropy");
    lay_out_queue_pairs(bits, header);
    bits.reserved(8);
    bits.field(24, header.nack_psn, "nack_psn", "PSN refused");
    bits.field(4, header.cc_type, "cc_type");
    bits.field(4, header.cc_flags, "cc_flags");
    bits.reserved(8);
    bits.field(16, header.tx_timestamp, "tx_timestamp");
  }
};

struct Peth {
  static constexpr const char* kName = "peth";
  static constexpr size_t kBytes = 16;
  uint8_t vendor_info = 0;
  uint16_t probe_id = 0;
  uint16_t spdcid = 0;
  uint16_t dpdcid = 0;
  uint16_t tx_timestamp = 0;
  bool tsr = false;
  uint8_t ftype = 1;
  bool operator==(const Peth&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    bits.reserved(24);
    bits.field(8, header.vendor_info, "vendor_info");
    bits.field(16, header.probe_id, "probe_id");
    bits.reserved(16);
    lay_out_queue_pairs(bits, header);
    lay_out_timestamp(bits, header);
  }
};

enum class EndpointOp : uint8_t { port_status = 0, entropy_probe = 1 };

struct Erth {
  static constexpr const char* kName = "erth";
  static constexpr size_t kBytes = 16;
  EndpointOp op{};
  uint8_t vendor_info = 0;
  uint32_t port_status_mask = 0;
  uint16_t tx_timestamp = 0;
  bool tsr = false;
  uint8_t ftype = 1;
  bool operator==(const Erth&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    bits.reserved(8 + 6);
    bits.field(2, header.op, "op", "Operation");
    bits.reserved(8);
    bits.field(8, header.vendor_info, "vendor_info");
    bits.field(32, header.port_status_mask, "port_status_mask", "Usable ports, a bit each");
    bits.reserved(32);
    lay_out_timestamp(bits, header);
  }
};

// Sources differ on the place of the operation, so requesters match a response by the request's id alone.
struct Eeth {
  static constexpr const char* kName = "eeth";
  static constexpr size_t kBytes = 36;
  EndpointOp op{};
  EndpointOp high_op{};  // zero in packets that ETLoop sends
  uint16_t tx_timestamp = 0;
  bool operator==(const Eeth&) const = default;

  static constexpr void lay_out(auto& bits, auto& header) {
    bits.reserved(8 + 2);
    bits.field(2, header.high_op, "high_op", "Operation, where one implementation writes it");
    bits.field(2, header.op, "op");
    bits.reserved(2 + 26 * 8);
    bits.field(16, header.tx_timestamp, "tx_timestamp");
    bits.reserved(48);
  }
};

struct Write {
  Meth meth;
  std::optional<Tseth> tseth;
  Reth reth;
  std::optional<Immediate> imm;
  uint32_t payload_bytes = 0;        // without pad
  const uint8_t* payload = nullptr;  // in the decoded bytes; null if these hold the headers alone
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

// Decode a UDP payload (BTH to ICRC) of `datagram_bytes` bytes, of which `bytes` holds the first ones, the headers at least. The
// ICRC is not checked.
Malformed decode(std::span<const uint8_t> bytes, size_t datagram_bytes, Packet& out);

// Write the headers up to the payload; return their length. Optional headers, and `pad` and `ts` of the BTH, follow from the
// body. The opcode must fit the body, and `out` must hold kMaxHeaderBytes.
size_t encode_headers(const Packet& packet, std::span<uint8_t> out);
bool body_fits(Opcode opcode, const Body& body);

// The part of a trimmed packet that its answer needs.
struct CutPacket {
  Opcode opcode{};
  uint32_t dest_qpn = 0;
  uint32_t psn = 0;
  std::optional<uint16_t> tx_timestamp;  // none: the packet has none, or it was cut off
  bool operator==(const CutPacket&) const = default;
};
// Decode the first bytes of a UDP payload whose lengths and ICRC no longer hold.
Malformed decode_cut(std::span<const uint8_t> bytes, CutPacket& out);

}  // namespace etloop::wire::mrc
