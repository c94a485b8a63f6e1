// RoCEv2 headers <-> values, and the invariant CRC. Pure: bytes in, bytes out.
// Source: InfiniBand Architecture Specification vol. 1, chapter 9 and annex A17 (RoCEv2).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/ip_address.h"
#include "wire/opcode.h"

namespace etloop::wire {

inline constexpr uint16_t kRoceUdpPort = 4791;
inline constexpr size_t kBthBytes = 12;
inline constexpr size_t kRethBytes = 16;
inline constexpr size_t kAethBytes = 4;
inline constexpr size_t kImmBytes = 4;
inline constexpr size_t kDethBytes = 8;
inline constexpr size_t kIcrcBytes = 4;
inline constexpr size_t kAtomicBytes = 28;
inline constexpr size_t kAtomicAckBytes = 8;
inline constexpr size_t kIethBytes = 4;
inline constexpr size_t kMaxHeaderBytes = kBthBytes + kAtomicBytes;
inline constexpr uint32_t kPsnMask = 0xFFFFFF;

// AETH syndromes (InfiniBand Architecture Specification vol. 1, 9.7.5.1.2).
inline constexpr uint8_t kSyndromeAck = 0x1F;
inline constexpr uint8_t kSyndromeNakSequence = 0x60;
inline constexpr uint8_t kSyndromeNakInvalidRequest = 0x61;
inline constexpr uint8_t kSyndromeNakRemoteAccess = 0x62;
inline constexpr uint8_t kSyndromeNakRemoteOperational = 0x63;
inline constexpr uint8_t kSyndromeRnr = 0x20;       // timer code in the low five bits
inline constexpr uint8_t kSyndromeKindMask = 0xE0;
inline constexpr uint8_t kRnrTimerMask = 0x1F;

// One packet as values. Fields that the opcode does not carry are zero. A null `payload` means the constant pattern
// (kPatternByte), whose CRC needs no access to payload bytes.
struct Packet {
  Opcode opcode{};
  bool ack_req = false;
  bool becn = false;
  uint32_t dest_qpn = 0;
  uint32_t psn = 0;
  uint64_t va = 0;         // RETH, AtomicETH
  uint32_t rkey = 0;       // RETH, AtomicETH; IETH: key to invalidate
  uint32_t dma_bytes = 0;  // RETH
  uint32_t imm = 0;        // ImmDt
  uint8_t syndrome = 0;    // AETH
  uint32_t msn = 0;        // AETH
  uint32_t qkey = 0;       // DETH
  uint32_t src_qpn = 0;    // DETH
  uint64_t swap_add = 0;   // AtomicETH: addend or swap value
  uint64_t compare = 0;    // AtomicETH
  uint64_t original = 0;   // AtomicAckETH: value before the operation
  uint32_t payload_bytes = 0;  // without pad
  const uint8_t* payload = nullptr;

  bool operator==(const Packet&) const = default;
};
inline constexpr uint8_t kPatternByte = 0xA5;

// Return the bytes of BTH and extension headers for an opcode.
size_t header_bytes(Opcode opcode);
// Return the UDP payload length of a packet: headers, payload, pad to 4 bytes, ICRC.
size_t datagram_bytes(Opcode opcode, uint32_t payload_bytes);

enum class Malformed : uint8_t {
  none, too_short, transport_version, other_transport, unknown_opcode, bad_pad, bad_length,
};

// Decode a UDP payload (BTH to ICRC) of `datagram_bytes` bytes, of which `bytes` holds the first ones, the headers at least. Real
// ports have all, the simulator only headers and inline payload. The ICRC is not checked.
Malformed decode(std::span<const uint8_t> bytes, size_t datagram_bytes, Packet& out);

// Whether the P_Key is the default partition's, with full or limited membership, which both ends of a run use (InfiniBand
// Architecture Specification vol. 1, 10.9.3). `bytes` begin with a BTH.
constexpr bool is_of_partition(uint16_t p_key) { return (p_key & 0x7FFF) == 0x7FFF; }
constexpr bool is_of_partition(std::span<const uint8_t> bytes) {
  return is_of_partition(static_cast<uint16_t>(bytes[2] << 8 | bytes[3]));
}

// The part of a trimmed packet that identifies it.
struct CutPacket {
  Opcode opcode{};
  uint32_t dest_qpn = 0;
  uint32_t psn = 0;
};
// Decode the first bytes of a UDP payload whose lengths and ICRC no longer hold.
Malformed decode_cut(std::span<const uint8_t> bytes, CutPacket& out);

// Write BTH and extension headers; return their length. `out` must hold kMaxHeaderBytes.
size_t encode_headers(const Packet& packet, std::span<uint8_t> out);

// IP and UDP fields that the ICRC covers. Both addresses have the same family.
struct IpFlow {
  IpAddress src_ip = IpAddress::v4(0);
  IpAddress dst_ip = IpAddress::v4(0);
  uint16_t src_port = 0;
  uint16_t dst_port = kRoceUdpPort;
};

// Return the ICRC of a packet in this flow, little-endian on the wire. The IPv4 header has identification `ip_id`, DF set and no
// options; the IPv6 header has no extensions, and `ip_id` is ignored.
uint32_t icrc(const IpFlow& flow, uint16_t ip_id, const Packet& packet);

// Return the ICRC of a packet with encoded headers from BTH on; `payload` as in `Packet`.
uint32_t icrc_of_headers(const IpFlow& flow, std::span<const uint8_t> headers, uint32_t payload_bytes, const uint8_t* payload);

// Check the ICRC of an Ethernet frame (IPv4 or IPv6, optional VLAN tag, no FCS). Packets to another UDP port are not RoCE.
enum class FrameCheck : uint8_t { good, bad_icrc, not_roce, malformed };
FrameCheck check_frame(std::span<const uint8_t> frame, uint16_t udp_port = kRoceUdpPort);
// Return the ICRC that an IP packet with UDP should end with. The packet must have UDP header, BTH and ICRC.
uint32_t icrc_of_ip(std::span<const uint8_t> packet);
// Check the ICRC of an IP packet to any UDP port; bytes behind it are padding.
FrameCheck check_ip(std::span<const uint8_t> packet);

// Return the signed distance a - b of two 24-bit sequence numbers.
constexpr int32_t psn_distance(uint32_t a, uint32_t b) {
  return static_cast<int32_t>((a - b) << 8) >> 8;
}

}  // namespace etloop::wire
