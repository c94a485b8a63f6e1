// Packets of Ultra Ethernet Transport (UET 1.0) over UDP <-> values. Pure: bytes in, bytes out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/uet_pds.h"
#include "wire/uet_ses.h"

namespace etloop::wire::uet {

inline constexpr uint16_t kUdpPort = 4793;

struct Packet {
  Pds pds;
  Ses ses;
  uint32_t payload_bytes = 0;
  const uint8_t* payload = nullptr;  // in the decoded bytes; null if these hold the headers alone
  bool operator==(const Packet&) const = default;
};
inline constexpr size_t kMaxHeaderBytes = Ack::kBytes + AckState::kBytes + StandardRequest::kBytes;

enum class Malformed : uint8_t {
  none, too_short, unknown_type, encrypted, reserved_bits, next_header, version, message_ends, bad_length,
};

// Decode a UDP payload of `datagram_bytes` bytes, of which `bytes` holds the first ones, the headers at least. Extension headers
// of atomics count as payload.
Malformed decode(std::span<const uint8_t> bytes, size_t datagram_bytes, Packet& out);
// Whether the lengths that a write or a send states agree with each other and with its payload. Each packet of a message but the
// last is full, so a packet that a switch trimmed never passes for a complete one.
bool lengths_agree(const StandardRequest& request, uint32_t payload_bytes, uint32_t path_mtu);

// Write the headers up to the payload; return their length. The types and next headers must fit the values, and `out` must hold
// kMaxHeaderBytes.
size_t encode_headers(const Packet& packet, std::span<uint8_t> out);

// Decode the PDS header of a trimmed packet, if enough of it is left.
Malformed decode_cut(std::span<const uint8_t> bytes, Pds& out);

}  // namespace etloop::wire::uet
