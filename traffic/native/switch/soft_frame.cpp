#include "switch/soft_frame.h"

#include <algorithm>
#include <cstring>

#include "wire/wire.h"

namespace etloop::soft {

namespace {

constexpr uint16_t kIpv4 = 0x0800;
constexpr uint16_t kIpv6 = 0x86DD;
constexpr uint16_t kTagged = 0x8100;
constexpr uint16_t kServiceTagged = 0x88A8;
constexpr uint8_t kTcp = 6;
constexpr uint8_t kUdp = 17;
constexpr uint8_t kIpv4Inside = 4;
constexpr uint8_t kIpv6Inside = 41;
constexpr uint8_t kRoutingHeader = 43;
constexpr size_t kIpv4Bytes = 20;
constexpr size_t kIpv6Bytes = 40;
constexpr size_t kIpv6DestinationAt = 24;
constexpr size_t kUdpBytes = 8;
constexpr size_t kUdpLengthAt = 4;
constexpr size_t kUdpChecksumAt = 6;

void put16(uint8_t* at, size_t value) {
  at[0] = static_cast<uint8_t>(value >> 8);
  at[1] = static_cast<uint8_t>(value);
}
uint16_t get16(const uint8_t* at) { return static_cast<uint16_t>((at[0] << 8) | at[1]); }
uint32_t get32(const uint8_t* at) { return (uint32_t{get16(at)} << 16) | get16(at + 2); }

uint16_t folded(uint32_t sum) {
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

// Recompute the checksum of an IPv4 header with options (RFC 1071).
void finish_ipv4(std::span<uint8_t> frame, size_t ip_at) {
  uint8_t* ip = frame.data() + ip_at;
  const size_t bytes = std::min<size_t>(size_t{ip[0] & 0x0FU} * 4, frame.size() - ip_at);
  put16(ip + 10, 0);
  uint32_t sum = 0;
  for (size_t at = 0; at + 1 < bytes; at += 2) sum += get16(ip + at);
  put16(ip + 10, static_cast<uint16_t>(~folded(sum)));
}

void read_ipv4(std::span<const uint8_t> frame, Headers& out) {
  const uint8_t* ip = frame.data() + out.ip_at;
  const size_t header_bytes = size_t{ip[0] & 0x0FU} * 4;
  if (ip[0] >> 4 != 4 || header_bytes < kIpv4Bytes || frame.size() < out.ip_at + header_bytes) return;
  out.use = FrameUse::ip;
  out.dscp = ip[1] >> 2;
  out.ecn = ip[1] & 3;
  out.protocol = ip[9];
  out.src_ip = IpAddress::v4(get32(ip + 12));
  out.dst_ip = IpAddress::v4(get32(ip + 16));
  const bool is_fragment = (get16(ip + 6) & 0x3FFF) != 0;
  if (!is_fragment) out.transport_at = out.ip_at + header_bytes;
}

void read_ipv6(std::span<const uint8_t> frame, Headers& out) {
  const uint8_t* ip = frame.data() + out.ip_at;
  if (ip[0] >> 4 != 6 || frame.size() < out.ip_at + kIpv6Bytes) return;
  out.use = FrameUse::ip;
  const auto traffic_class = static_cast<uint8_t>((get16(ip) >> 4) & 0xFF);
  out.dscp = traffic_class >> 2;
  out.ecn = traffic_class & 3;
  out.protocol = ip[6];
  std::memcpy(out.src_ip.bytes.data(), ip + 8, 16);
  std::memcpy(out.dst_ip.bytes.data(), ip + 24, 16);
  out.transport_at = out.ip_at + kIpv6Bytes;
}

void read_ports(std::span<const uint8_t> frame, Headers& out) {
  const bool has_ports = out.protocol == kUdp || out.protocol == kTcp;
  if (!has_ports || frame.size() < out.transport_at + kUdpBytes) out.transport_at = 0;
  if (out.transport_at == 0) return;
  out.src_port = get16(frame.data() + out.transport_at);
  out.dst_port = get16(frame.data() + out.transport_at + 2);
}

FiveTuple tuple_of(const Headers& headers) {
  return {headers.src_ip, headers.dst_ip, headers.protocol, headers.src_port, headers.dst_port};
}

// Return the offset of an encapsulated packet and its kind (`kIpv4Inside`, `kIpv6Inside`); 0: there is none.
size_t inner_at(std::span<const uint8_t> frame, const Headers& headers, uint8_t& kind) {
  const uint8_t* ip = frame.data() + headers.ip_at;
  size_t at = headers.ip_at + (ip[0] >> 4 == 4 ? size_t{ip[0] & 0x0FU} * 4 : kIpv6Bytes);
  kind = headers.protocol;
  if (kind == kRoutingHeader && frame.size() >= at + 8) {
    kind = frame[at];
    at += (size_t{frame[at + 1]} + 1) * 8;
  }
  return kind == kIpv4Inside || kind == kIpv6Inside ? at : 0;
}

}  // namespace

HashedHeaders read_hashed(std::span<const uint8_t> frame, const Headers& headers) {
  constexpr size_t kDestQpAt = 5;
  HashedHeaders out;
  if (headers.use != FrameUse::ip) return out;
  out.outer = tuple_of(headers);
  const uint8_t* ip = frame.data() + headers.ip_at;
  if (ip[0] >> 4 == 6) out.flow_label = get32(ip) & 0xFFFFF;
  const bool is_roce = headers.protocol == kUdp && headers.dst_port == wire::kRoceUdpPort;
  if (is_roce && headers.transport_at != 0 && frame.size() >= headers.transport_at + kUdpBytes + wire::kBthBytes) {
    out.dest_qp = get32(frame.data() + headers.transport_at + kUdpBytes + kDestQpAt - 1) & 0xFFFFFF;
  }
  uint8_t kind = 0;
  Headers inner;
  inner.ip_at = inner_at(frame, headers, kind);
  if (inner.ip_at == 0) return out;
  if (kind == kIpv4Inside && frame.size() >= inner.ip_at + kIpv4Bytes) read_ipv4(frame, inner);
  if (kind == kIpv6Inside && frame.size() >= inner.ip_at + kIpv6Bytes) read_ipv6(frame, inner);
  if (inner.use != FrameUse::ip) return out;
  read_ports(frame, inner);
  out.inner = tuple_of(inner);
  return out;
}

Headers read_headers(std::span<const uint8_t> frame) {
  Headers out;
  size_t at = ethernet::kMacsBytes;
  if (frame.size() < at + 2) return out;
  std::copy_n(frame.begin(), out.destination.size(), out.destination.begin());
  uint16_t type = get16(frame.data() + at);
  for (int tags = 0; tags < 2 && (type == kTagged || type == kServiceTagged); ++tags) {
    at += ethernet::kTagBytes;
    if (frame.size() < at + 2) return out;
    type = get16(frame.data() + at);
  }
  if (ethernet::parse_pause(frame)) {
    out.use = FrameUse::pause;
    return out;
  }
  out.ip_at = at + 2;
  if (type == kIpv4 && frame.size() >= out.ip_at + kIpv4Bytes) read_ipv4(frame, out);
  if (type == kIpv6 && frame.size() >= out.ip_at + kIpv6Bytes) read_ipv6(frame, out);
  if (out.use != FrameUse::ip) return out;
  read_ports(frame, out);
  out.flow_key = flow_key(tuple_of(out));
  return out;
}

int32_t frame_bytes(size_t bytes) {
  return std::max(static_cast<int32_t>(bytes) + kCheckSequenceBytes, kLeastFrameBytes);
}

size_t datagrams_in(std::span<const uint8_t> frame, const Headers& headers, const OffloadHeader& offload) {
  if ((offload.gso_type & ~kGsoEcn) != kGsoUdpL4 || offload.gso_bytes == 0) return 0;
  if (headers.use != FrameUse::ip || headers.protocol != kUdp || headers.transport_at == 0) return 0;
  const size_t payload_bytes = frame.size() - headers.transport_at - kUdpBytes;
  return (payload_bytes + offload.gso_bytes - 1) / offload.gso_bytes;
}

size_t cut_datagram(std::span<const uint8_t> frame, const Headers& headers, const OffloadHeader& offload, size_t number,
                    std::span<uint8_t> out, OffloadHeader& offload_out) {
  const size_t head_bytes = headers.transport_at + kUdpBytes;
  const size_t at = head_bytes + number * offload.gso_bytes;
  const size_t bytes = std::min<size_t>(offload.gso_bytes, frame.size() - at);
  const size_t joined_udp_bytes = get16(frame.data() + headers.transport_at + kUdpLengthAt);
  const std::span<uint8_t> cut = out.first(head_bytes + bytes);
  std::memcpy(cut.data(), frame.data(), head_bytes);
  std::memcpy(cut.data() + head_bytes, frame.data() + at, bytes);
  uint8_t* ip = cut.data() + headers.ip_at;
  // Number segments like the kernel (net/ipv4/af_inet.c: inet_gso_segment).
  if (ip[0] >> 4 == 4) put16(ip + 4, static_cast<size_t>(get16(ip + 4)) + number);
  set_lengths(cut, headers);
  offload_out = {};
  if ((offload.flags & kNeedsChecksum) != 0) {
    // The field has the sum of the pseudo header, which includes the length.
    uint8_t* checksum = cut.data() + headers.transport_at + kUdpChecksumAt;
    const auto shorter = static_cast<uint16_t>(joined_udp_bytes - (kUdpBytes + bytes));
    put16(checksum, folded(uint32_t{get16(checksum)} + static_cast<uint16_t>(~shorter)));
    offload_out.flags = kNeedsChecksum;
    offload_out.checksum_start = static_cast<uint16_t>(headers.transport_at);
    offload_out.checksum_offset = kUdpChecksumAt;
  }
  return cut.size();
}

void finish_checksum(std::span<uint8_t> frame, const OffloadHeader& offload) {
  const size_t start = offload.checksum_start;
  const size_t at = start + offload.checksum_offset;
  if ((offload.flags & kNeedsChecksum) == 0 || frame.size() < std::max(at + 2, start + kUdpBytes)) return;
  const bool is_udp = offload.checksum_offset == kUdpChecksumAt;
  if (is_udp && get16(frame.data() + start + 2) == wire::kRoceUdpPort) {
    put16(frame.data() + at, 0);
    return;
  }
  // RFC 1071: the field has the sum of the pseudo header. 64 KiB of frame cannot overflow 32 bits.
  uint32_t sum = 0;
  size_t next = start;
  for (; next + 1 < frame.size(); next += 2) sum += get16(frame.data() + next);
  if (next < frame.size()) sum += uint32_t{frame[next]} << 8;
  const auto finished = static_cast<uint16_t>(~folded(sum));
  put16(frame.data() + at, is_udp && finished == 0 ? 0xFFFF : finished);  // RFC 768: 0 means no checksum
}

void set_traffic_class(std::span<uint8_t> frame, size_t ip_at, uint8_t traffic_class) {
  uint8_t* ip = frame.data() + ip_at;
  if (ip[0] >> 4 == 6) {
    put16(ip, (get16(ip) & 0xF00F) | (size_t{traffic_class} << 4));
    return;
  }
  ip[1] = traffic_class;
  finish_ipv4(frame, ip_at);
}

IpAddress ipv6_destination(std::span<const uint8_t> frame, size_t ip_at) {
  IpAddress destination;
  std::memcpy(destination.bytes.data(), frame.data() + ip_at + kIpv6DestinationAt, destination.bytes.size());
  return destination;
}

void set_ipv6_destination(std::span<uint8_t> frame, size_t ip_at, const IpAddress& destination) {
  std::memcpy(frame.data() + ip_at + kIpv6DestinationAt, destination.bytes.data(), destination.bytes.size());
}

void set_lengths(std::span<uint8_t> frame, const Headers& headers) {
  uint8_t* ip = frame.data() + headers.ip_at;
  const bool is_udp = headers.protocol == kUdp && headers.transport_at != 0;
  if (is_udp && frame.size() >= headers.transport_at + kUdpBytes) {
    put16(frame.data() + headers.transport_at + kUdpLengthAt, frame.size() - headers.transport_at);
  }
  if (ip[0] >> 4 == 6) {
    put16(ip + 4, frame.size() - headers.ip_at - kIpv6Bytes);
    return;
  }
  put16(ip + 2, frame.size() - headers.ip_at);
  finish_ipv4(frame, headers.ip_at);
}

}  // namespace etloop::soft
