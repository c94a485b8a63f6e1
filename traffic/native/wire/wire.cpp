#include "wire/wire.h"

#include <algorithm>
#include <cstring>

#include "base/crc32.h"

namespace etloop::wire {
namespace {

constexpr uint8_t kMigReq = 0x40;  // ConnectX sets it in all packets but CNPs; receivers accept both
constexpr uint16_t kDefaultPkey = 0xFFFF;
constexpr uint8_t kBecn = 0x40;
constexpr uint8_t kAckReq = 0x80;
constexpr size_t kCnpReservedBytes = 16;

constexpr size_t kIpv4Bytes = 20;
constexpr size_t kIpv6Bytes = 40;
constexpr size_t kUdpBytes = 8;
constexpr uint8_t kProtocolUdp = 17;
constexpr std::array<uint8_t, 8> kIcrcPrefix = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};

const crc32::RepeatedByte kPatternRun{kPatternByte};

void put16(uint8_t* at, uint32_t value) {
  at[0] = static_cast<uint8_t>(value >> 8);
  at[1] = static_cast<uint8_t>(value);
}
void put24(uint8_t* at, uint32_t value) {
  at[0] = static_cast<uint8_t>(value >> 16);
  put16(at + 1, value);
}
void put32(uint8_t* at, uint32_t value) {
  put16(at, value >> 16);
  put16(at + 2, value);
}
void put64(uint8_t* at, uint64_t value) {
  put32(at, static_cast<uint32_t>(value >> 32));
  put32(at + 4, static_cast<uint32_t>(value));
}
uint32_t get16(const uint8_t* at) { return (uint32_t{at[0]} << 8) | at[1]; }
uint32_t get24(const uint8_t* at) { return (uint32_t{at[0]} << 16) | get16(at + 1); }
uint32_t get32(const uint8_t* at) { return (get16(at) << 16) | get16(at + 2); }
uint64_t get64(const uint8_t* at) { return (uint64_t{get32(at)} << 32) | get32(at + 4); }

constexpr size_t pad_bytes(size_t payload_bytes) { return (0 - payload_bytes) & 3; }

constexpr size_t extension_bytes(Opcode opcode) {
  const Extensions has = shape(opcode).has;
  return (has.reth ? kRethBytes : 0) + (has.atomic ? kAtomicBytes : 0) + (has.imm ? kImmBytes : 0) +
         (has.aeth ? kAethBytes : 0) + (has.atomic_ack ? kAtomicAckBytes : 0) + (has.ieth ? kIethBytes : 0) +
         (has.deth ? kDethBytes : 0) + (has.cnp_reserved ? kCnpReservedBytes : 0);
}

constexpr std::array<uint8_t, 256> make_header_bytes() {
  std::array<uint8_t, 256> bytes{};
  for (size_t opcode = 0; opcode < bytes.size(); ++opcode) {
    bytes[opcode] = static_cast<uint8_t>(kBthBytes + extension_bytes(static_cast<Opcode>(opcode)));
  }
  return bytes;
}
constexpr std::array<uint8_t, 256> kHeaderBytes = make_header_bytes();
static_assert(*std::max_element(kHeaderBytes.begin(), kHeaderBytes.end()) == kMaxHeaderBytes);

constexpr bool payload_fits(PayloadRule rule, size_t payload_bytes) {
  switch (rule) {
    case PayloadRule::none: return payload_bytes == 0;
    case PayloadRule::any: return true;
    case PayloadRule::some: return payload_bytes > 0;
    case PayloadRule::whole_words: return payload_bytes > 0 && pad_bytes(payload_bytes) == 0;
    case PayloadRule::bitmap: return payload_bytes == kSelectiveBitmapBytes;
  }
  return false;
}

void decode_extensions(const uint8_t* at, Packet& out) {
  const Extensions has = shape(out.opcode).has;
  if (has.reth) {
    out.va = get64(at);
    out.rkey = get32(at + 8);
    out.dma_bytes = get32(at + 12);
    at += kRethBytes;
  }
  if (has.atomic) {
    out.va = get64(at);
    out.rkey = get32(at + 8);
    out.swap_add = get64(at + 12);
    out.compare = get64(at + 20);
  }
  if (has.imm) out.imm = get32(at);
  if (has.ieth) out.rkey = get32(at);
  if (has.aeth) {
    out.syndrome = at[0];
    out.msn = get24(at + 1);
    at += kAethBytes;
  }
  if (has.atomic_ack) out.original = get64(at);
  if (has.deth) {
    out.qkey = get32(at);
    out.src_qpn = get24(at + 5);
  }
}

uint32_t update_payload(uint32_t state, uint32_t payload_bytes, const uint8_t* payload) {
  size_t left = payload_bytes;
  if (payload != nullptr) {
    state = crc32::update(state, {payload, left});
  } else {
    while (left > 0) {
      const size_t run = left < crc32::kMaxRun ? left : crc32::kMaxRun;
      state = crc32::shift(state, run) ^ kPatternRun.run(run);
      left -= run;
    }
  }
  return crc32::shift(state, pad_bytes(payload_bytes));
}

uint32_t get32_le(const uint8_t* at) {
  return at[0] | (uint32_t{at[1]} << 8) | (uint32_t{at[2]} << 16) | (uint32_t{at[3]} << 24);
}

// Write IP headers as the ICRC covers them, with ones in fields that switches may change (IBTA annex A17.3.3); return the length.
size_t put_masked_ipv4(uint8_t* ip, const IpFlow& flow, uint16_t ip_id, size_t udp_length) {
  ip[0] = 0x45;
  ip[1] = 0xFF;
  put16(ip + 2, static_cast<uint32_t>(kIpv4Bytes + udp_length));
  put16(ip + 4, ip_id);
  put16(ip + 6, 0x4000);  // DF
  ip[8] = 0xFF;
  ip[9] = kProtocolUdp;
  put16(ip + 10, 0xFFFF);
  put32(ip + 12, flow.src_ip.v4());
  put32(ip + 16, flow.dst_ip.v4());
  return kIpv4Bytes;
}

size_t put_masked_ipv6(uint8_t* ip, const IpFlow& flow, size_t udp_length) {
  put32(ip, 0x6FFFFFFF);
  put16(ip + 4, static_cast<uint32_t>(udp_length));
  ip[6] = kProtocolUdp;
  ip[7] = 0xFF;
  std::memcpy(ip + 8, flow.src_ip.bytes.data(), flow.src_ip.bytes.size());
  std::memcpy(ip + 24, flow.dst_ip.bytes.data(), flow.dst_ip.bytes.size());
  return kIpv6Bytes;
}

// An IP packet that carries RoCEv2: `packet` ends with the ICRC, and `udp` is the offset of its UDP header.
struct RocePacket {
  std::span<const uint8_t> packet;
  size_t udp = 0;
};

// Return the ICRC of an IP packet whose UDP header is at `udp`.
uint32_t icrc_at(std::span<const uint8_t> ip, size_t udp, bool ipv4) {
  constexpr size_t kMostHeaders = kIcrcPrefix.size() + 60 + kUdpBytes + kBthBytes;  // with the longest IPv4 header
  static_assert(kMostHeaders <= 2 * crc32::kFirstBytes);
  const size_t headers = kIcrcPrefix.size() + udp + kUdpBytes + kBthBytes;
  const size_t hashed_bytes = ip.size() - kIcrcBytes;
  // The rest of the block is filled with the bytes behind the headers.
  std::array<uint8_t, 2 * crc32::kFirstBytes> hashed;
  const size_t room = headers <= crc32::kFirstBytes ? crc32::kFirstBytes : headers;
  const size_t filled = std::min(room, kIcrcPrefix.size() + hashed_bytes);
  std::memcpy(hashed.data(), kIcrcPrefix.data(), kIcrcPrefix.size());
  uint8_t* masked = hashed.data() + kIcrcPrefix.size();
  std::memcpy(masked, ip.data(), filled - kIcrcPrefix.size());
  if (ipv4) {
    masked[1] = masked[8] = masked[10] = masked[11] = 0xFF;
  } else {
    masked[0] |= 0x0F;
    masked[1] = masked[2] = masked[3] = masked[7] = 0xFF;
  }
  masked[udp + 6] = masked[udp + 7] = masked[udp + kUdpBytes + 4] = 0xFF;
  if (filled < crc32::kFirstBytes) return ~crc32::update(crc32::kInitial, {hashed.data(), filled});
  const size_t before = filled - crc32::kFirstBytes;
  const uint32_t state = crc32::update(crc32::kInitial, {hashed.data(), before});
  const size_t taken = filled - kIcrcPrefix.size();
  return ~crc32::update(state, std::span(hashed).subspan(before).first<crc32::kFirstBytes>(),
                        ip.subspan(taken, hashed_bytes - taken));
}

FrameCheck check_roce(const RocePacket& roce, bool ipv4, std::optional<uint16_t> port) {
  const std::span<const uint8_t> ip = roce.packet;
  const size_t udp = roce.udp;
  if (ip.size() < udp + kUdpBytes) return FrameCheck::malformed;
  if (port && get16(&ip[udp + 2]) != *port) return FrameCheck::not_roce;
  if (get16(&ip[udp + 4]) != ip.size() - udp) return FrameCheck::malformed;
  if (ip.size() < udp + kUdpBytes + kBthBytes + kIcrcBytes) return FrameCheck::malformed;

  return get32_le(&ip[ip.size() - kIcrcBytes]) == icrc_at(ip, udp, ipv4) ? FrameCheck::good : FrameCheck::bad_icrc;
}

FrameCheck check_ipv4(std::span<const uint8_t> ip, std::optional<uint16_t> port) {
  if (ip.size() < kIpv4Bytes || ip[0] >> 4 != 4) return FrameCheck::malformed;
  const size_t header_length = size_t{ip[0] & 0x0FU} * 4;
  const size_t total_length = get16(&ip[2]);
  if (header_length < kIpv4Bytes || total_length < header_length || total_length > ip.size()) {
    return FrameCheck::malformed;
  }
  const bool is_fragment = (get16(&ip[6]) & 0x3FFF) != 0;  // more fragments follow, or not the first
  if (ip[9] != kProtocolUdp || is_fragment) return FrameCheck::not_roce;
  return check_roce({ip.first(total_length), header_length}, true, port);
}

FrameCheck check_ipv6(std::span<const uint8_t> ip, std::optional<uint16_t> port) {
  if (ip.size() < kIpv6Bytes || ip[0] >> 4 != 6) return FrameCheck::malformed;
  const size_t total_length = kIpv6Bytes + get16(&ip[4]);
  if (total_length > ip.size()) return FrameCheck::malformed;
  if (ip[6] != kProtocolUdp) return FrameCheck::not_roce;  // RoCEv2 has no extension headers
  return check_roce({ip.first(total_length), kIpv6Bytes}, false, port);
}

}  // namespace

size_t header_bytes(Opcode opcode) { return kHeaderBytes[static_cast<uint8_t>(opcode)]; }

size_t datagram_bytes(Opcode opcode, uint32_t payload_bytes) {
  return header_bytes(opcode) + payload_bytes + pad_bytes(payload_bytes) + kIcrcBytes;
}

Malformed decode(std::span<const uint8_t> bytes, size_t datagram_bytes, Packet& out) {
  if (bytes.size() < kBthBytes || datagram_bytes < kBthBytes + kIcrcBytes) return Malformed::too_short;
  const uint8_t* bth = bytes.data();
  if ((bth[1] & 0x0F) != 0) return Malformed::transport_version;
  if (is_mrc(bth[0])) return Malformed::other_transport;
  if (!is_known(bth[0])) return Malformed::unknown_opcode;
  const Opcode opcode = static_cast<Opcode>(bth[0]);
  const size_t headers = header_bytes(opcode);
  if (bytes.size() < headers || datagram_bytes < headers + kIcrcBytes) return Malformed::too_short;
  if (datagram_bytes % 4 != 0 || datagram_bytes > UINT16_MAX) return Malformed::bad_length;

  const size_t padded_bytes = datagram_bytes - headers - kIcrcBytes;
  const size_t pad = (bth[1] >> 4) & 3;
  if (pad > padded_bytes) return Malformed::bad_pad;
  if (!payload_fits(shape(opcode).payload, padded_bytes - pad)) return Malformed::bad_length;

  out = Packet{};
  out.opcode = opcode;
  out.becn = (bth[4] & kBecn) != 0;
  out.dest_qpn = get24(bth + 5);
  out.ack_req = (bth[8] & kAckReq) != 0;
  out.psn = get24(bth + 9);
  out.payload_bytes = static_cast<uint32_t>(padded_bytes - pad);
  if (out.payload_bytes > 0 && bytes.size() >= headers + out.payload_bytes) out.payload = bth + headers;
  decode_extensions(bth + kBthBytes, out);
  return Malformed::none;
}

Malformed decode_cut(std::span<const uint8_t> bytes, CutPacket& out) {
  if (bytes.size() < kBthBytes) return Malformed::too_short;
  const uint8_t* bth = bytes.data();
  if ((bth[1] & 0x0F) != 0) return Malformed::transport_version;
  if (is_mrc(bth[0])) return Malformed::other_transport;
  if (!is_known(bth[0])) return Malformed::unknown_opcode;
  out = {static_cast<Opcode>(bth[0]), get24(bth + 5), get24(bth + 9)};
  return Malformed::none;
}

size_t encode_headers(const Packet& packet, std::span<uint8_t> out) {
  uint8_t* at = out.data();
  const Extensions has = shape(packet.opcode).has;
  at[0] = static_cast<uint8_t>(packet.opcode);
  at[1] = static_cast<uint8_t>((packet.opcode == Opcode::cnp ? 0 : kMigReq) | (pad_bytes(packet.payload_bytes) << 4));
  put16(at + 2, kDefaultPkey);
  at[4] = packet.becn ? kBecn : 0;
  put24(at + 5, packet.dest_qpn);
  at[8] = packet.ack_req ? kAckReq : 0;
  put24(at + 9, packet.psn);
  at += kBthBytes;
  if (has.reth) {
    put64(at, packet.va);
    put32(at + 8, packet.rkey);
    put32(at + 12, packet.dma_bytes);
    at += kRethBytes;
  }
  if (has.atomic) {
    put64(at, packet.va);
    put32(at + 8, packet.rkey);
    put64(at + 12, packet.swap_add);
    put64(at + 20, packet.compare);
    at += kAtomicBytes;
  }
  if (has.imm) {
    put32(at, packet.imm);
    at += kImmBytes;
  }
  if (has.ieth) {
    put32(at, packet.rkey);
    at += kIethBytes;
  }
  if (has.aeth) {
    at[0] = packet.syndrome;
    put24(at + 1, packet.msn);
    at += kAethBytes;
  }
  if (has.atomic_ack) {
    put64(at, packet.original);
    at += kAtomicAckBytes;
  }
  if (has.deth) {
    put32(at, packet.qkey);
    at[4] = 0;
    put24(at + 5, packet.src_qpn);
    at += kDethBytes;
  }
  if (has.cnp_reserved) {
    std::memset(at, 0, kCnpReservedBytes);
    at += kCnpReservedBytes;
  }
  return static_cast<size_t>(at - out.data());
}

namespace {

// Bytes hashed before the payload: masked IP and UDP headers, and the headers from BTH on.
struct MaskedHeaders {
  static constexpr size_t kMostAfterUdp = 64;
  std::array<uint8_t, kIcrcPrefix.size() + kIpv6Bytes + kUdpBytes + kMostAfterUdp> bytes;
  uint8_t* bth = nullptr;

  void put(const IpFlow& flow, uint16_t ip_id, size_t udp_length) {
    std::memcpy(bytes.data(), kIcrcPrefix.data(), kIcrcPrefix.size());
    uint8_t* udp = bytes.data() + kIcrcPrefix.size();
    udp += flow.src_ip.is_v4() ? put_masked_ipv4(udp, flow, ip_id, udp_length) : put_masked_ipv6(udp, flow, udp_length);
    put16(udp, flow.src_port);
    put16(udp + 2, flow.dst_port);
    put16(udp + 4, static_cast<uint32_t>(udp_length));
    put16(udp + 6, 0xFFFF);
    bth = udp + kUdpBytes;
  }
  uint32_t hashed(size_t headers) {
    bth[4] = 0xFF;
    return crc32::update(crc32::kInitial, {bytes.data(), static_cast<size_t>(bth - bytes.data()) + headers});
  }
};
static_assert(MaskedHeaders::kMostAfterUdp >= kMaxHeaderBytes);

}  // namespace

uint32_t icrc(const IpFlow& flow, uint16_t ip_id, const Packet& packet) {
  MaskedHeaders masked;
  masked.put(flow, ip_id, kUdpBytes + datagram_bytes(packet.opcode, packet.payload_bytes));
  const size_t headers = encode_headers(packet, {masked.bth, kMaxHeaderBytes});
  return ~update_payload(masked.hashed(headers), packet.payload_bytes, packet.payload);
}

uint32_t icrc_of_headers(const IpFlow& flow, std::span<const uint8_t> headers, uint32_t payload_bytes, const uint8_t* payload) {
  MaskedHeaders masked;
  masked.put(flow, 0, kUdpBytes + headers.size() + payload_bytes + pad_bytes(payload_bytes) + kIcrcBytes);
  std::copy(headers.begin(), headers.end(), masked.bth);
  return ~update_payload(masked.hashed(headers.size()), payload_bytes, payload);
}

uint32_t icrc_of_ip(std::span<const uint8_t> packet) {
  const bool ipv4 = packet[0] >> 4 == 4;
  return icrc_at(packet, ipv4 ? size_t{packet[0] & 0x0FU} * 4 : kIpv6Bytes, ipv4);
}

FrameCheck check_ip(std::span<const uint8_t> packet) {
  if (packet.empty()) return FrameCheck::malformed;
  return packet[0] >> 4 == 6 ? check_ipv6(packet, std::nullopt) : check_ipv4(packet, std::nullopt);
}

FrameCheck check_frame(std::span<const uint8_t> frame, uint16_t udp_port) {
  constexpr size_t kEtherTypeAt = 12;
  constexpr size_t kVlanBytes = 4;
  constexpr int kMaxTags = 2;
  size_t at = kEtherTypeAt;
  for (int tags = 0;; ++tags) {
    if (frame.size() < at + 2) return FrameCheck::malformed;
    const uint32_t ether_type = get16(&frame[at]);
    if (ether_type == 0x0800) return check_ipv4(frame.subspan(at + 2), udp_port);
    if (ether_type == 0x86DD) return check_ipv6(frame.subspan(at + 2), udp_port);
    if ((ether_type != 0x8100 && ether_type != 0x88A8) || tags == kMaxTags) return FrameCheck::not_roce;
    at += kVlanBytes;
  }
}

}  // namespace etloop::wire
