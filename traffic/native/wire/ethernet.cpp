#include "wire/ethernet.h"

#include <algorithm>
#include <cstring>

namespace etloop::ethernet {
namespace {

constexpr uint16_t kIpv4 = 0x0800;
constexpr uint16_t kIpv6 = 0x86DD;
constexpr uint16_t kTagged = 0x8100;
constexpr uint16_t kServiceTagged = 0x88A8;
constexpr uint16_t kMacControl = 0x8808;
constexpr uint16_t kPriorityFlowControl = 0x0101;
constexpr Mac kPauseDestination = {0x01, 0x80, 0xC2, 0x00, 0x00, 0x01};
constexpr uint8_t kUdp = 17;
constexpr uint8_t kIpv6Inside = 41;
constexpr uint8_t kEcnMask = 3;
constexpr size_t kIpv4Bytes = 20;
constexpr size_t kIpv6Bytes = 40;
constexpr size_t kUdpBytes = 8;
constexpr int64_t kQuantumBits = 512;

void put16(uint8_t* at, size_t value) {
  at[0] = static_cast<uint8_t>(value >> 8);
  at[1] = static_cast<uint8_t>(value);
}
void put32(uint8_t* at, uint32_t value) {
  put16(at, value >> 16);
  put16(at + 2, value & 0xFFFF);
}
uint16_t get16(const uint8_t* at) { return static_cast<uint16_t>((at[0] << 8) | at[1]); }
uint32_t get32(const uint8_t* at) { return (uint32_t{get16(at)} << 16) | get16(at + 2); }

uint16_t header_checksum(const uint8_t* header) {
  uint32_t sum = 0;
  for (size_t at = 0; at < kIpv4Bytes; at += 2) sum += get16(header + at);
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

size_t put_ipv4(uint8_t* ip, const Path& path, uint8_t traffic_class, uint16_t ip_id, size_t udp_bytes) {
  ip[0] = 0x45;
  ip[1] = traffic_class;
  put16(ip + 2, kIpv4Bytes + udp_bytes);
  put16(ip + 4, ip_id);
  put16(ip + 6, 0x4000);  // DF
  ip[8] = path.hop_limit;
  ip[9] = kUdp;
  put16(ip + 10, 0);
  put32(ip + 12, path.flow.src_ip.v4());
  put32(ip + 16, path.flow.dst_ip.v4());
  put16(ip + 10, header_checksum(ip));
  return kIpv4Bytes;
}

size_t put_ipv6(uint8_t* ip, const Path& path, uint8_t traffic_class, size_t udp_bytes) {
  put32(ip, 0x60000000 | (uint32_t{traffic_class} << 20) | flow_label(path.flow.src_port));
  put16(ip + 4, udp_bytes);
  ip[6] = kUdp;
  ip[7] = path.hop_limit;
  std::memcpy(ip + 8, path.flow.src_ip.bytes.data(), 16);
  std::memcpy(ip + 24, path.flow.dst_ip.bytes.data(), 16);
  return kIpv6Bytes;
}

// Write the outer IPv6 header of an SRv6 packet (RFC 8986, 5.1, without a routing header).
size_t put_carrier(uint8_t* ip, const Path& path, uint8_t traffic_class, size_t udp_bytes) {
  put_ipv6(ip, path, traffic_class, kIpv6Bytes + udp_bytes);
  ip[6] = kIpv6Inside;
  const IpAddress carrier = usid::carrier_of(*path.segments, path.flow.src_port);
  std::memcpy(ip + 24, carrier.bytes.data(), carrier.bytes.size());
  return kIpv6Bytes;
}

// Remove the outer header of IPv6 in IPv6. Its traffic class is kept, and CE of either header (RFC 6040).
bool take_carrier(std::span<const uint8_t> frame, Frame& out, uint8_t& outer_class) {
  const uint8_t* ip = frame.data() + out.ip_at;
  const size_t left = frame.size() - out.ip_at;
  if (left < kIpv6Bytes || ip[0] >> 4 != 6 || ip[6] != kIpv6Inside) return false;
  outer_class = static_cast<uint8_t>((get16(ip) >> 4) & 0xFF);
  std::memcpy(out.carrier.emplace().bytes.data(), ip + 24, 16);
  out.ip_at += kIpv6Bytes;
  return true;
}

// Parse the IP header at `out.ip_at`. False: not UDP. Otherwise `udp_at` and `end` bound the UDP datagram.
bool parse_ip(std::span<const uint8_t> frame, Frame& out, size_t& udp_at, size_t& end) {
  const uint8_t* ip = frame.data() + out.ip_at;
  const size_t left = frame.size() - out.ip_at;
  if (left >= kIpv4Bytes && ip[0] >> 4 == 4) {
    const size_t header = size_t{ip[0] & 0x0FU} * 4;
    if (ip[9] != kUdp || header < kIpv4Bytes) return false;
    out.traffic_class = ip[1];
    out.src_ip = IpAddress::v4(get32(ip + 12));
    out.dst_ip = IpAddress::v4(get32(ip + 16));
    udp_at = out.ip_at + header;
    end = out.ip_at + get16(ip + 2);
    if ((get16(ip + 6) & 0x3FFF) != 0) end = 0;  // fragments count as truncated
    return true;
  }
  if (left < kIpv6Bytes || ip[0] >> 4 != 6 || ip[6] != kUdp) return false;
  out.traffic_class = static_cast<uint8_t>((get16(ip) >> 4) & 0xFF);
  std::memcpy(out.src_ip.bytes.data(), ip + 8, 16);
  std::memcpy(out.dst_ip.bytes.data(), ip + 24, 16);
  udp_at = out.ip_at + kIpv6Bytes;
  end = udp_at + get16(ip + 4);
  return true;
}

}  // namespace

size_t header_bytes(const Path& path) {
  const size_t outer_bytes = path.segments != nullptr ? usid::kOuterHeaderBytes : 0;
  const size_t ip_bytes = path.flow.dst_ip.is_v4() ? kIpv4Bytes : kIpv6Bytes;
  return kMacsBytes + 2 + (path.tag ? kTagBytes : 0) + outer_bytes + ip_bytes + kUdpBytes;
}

size_t put_headers(const Path& path, uint8_t traffic_class, uint16_t ip_id, size_t datagram_bytes,
                   std::span<uint8_t> out) {
  uint8_t* at = out.data();
  std::memcpy(at, path.destination.data(), path.destination.size());
  std::memcpy(at + 6, path.source.data(), path.source.size());
  at += kMacsBytes;
  if (path.tag) {
    put16(at, kTagged);
    put16(at + 2, (size_t{path.tag->priority} << 13) | path.tag->id);
    at += kTagBytes;
  }
  const bool four = path.flow.dst_ip.is_v4();
  put16(at, four ? kIpv4 : kIpv6);
  at += 2;
  const size_t udp_bytes = kUdpBytes + datagram_bytes;
  if (path.segments != nullptr) at += put_carrier(at, path, traffic_class, udp_bytes);
  at += four ? put_ipv4(at, path, traffic_class, ip_id, udp_bytes) : put_ipv6(at, path, traffic_class, udp_bytes);
  put16(at, path.flow.src_port);
  put16(at + 2, path.flow.dst_port);
  put16(at + 4, udp_bytes);
  put16(at + 6, 0);
  return static_cast<size_t>(at + kUdpBytes - out.data());
}

Frame parse(std::span<const uint8_t> frame, uint16_t udp_port) {
  Frame out;
  size_t at = kMacsBytes;
  if (frame.size() < at + 2) return out;
  uint16_t type = get16(frame.data() + at);
  for (int tags = 0; tags < 2 && (type == kTagged || type == kServiceTagged); ++tags) {
    if (frame.size() < at + kTagBytes + 2) return out;
    const uint16_t control = get16(frame.data() + at + 2);
    out.tag = Tag{static_cast<uint16_t>(control & 0x0FFF), static_cast<uint8_t>(control >> 13)};
    at += kTagBytes;
    type = get16(frame.data() + at);
  }
  if (type == kMacControl) {
    out.kind = parse_pause(frame) ? FrameKind::pause : FrameKind::other;
    return out;
  }
  if (type != kIpv4 && type != kIpv6) return out;
  out.ip_at = at + 2;
  uint8_t outer_class = 0;
  if (type == kIpv6 && take_carrier(frame, out, outer_class) && frame.size() < out.ip_at + kIpv6Bytes) return out;
  size_t udp_at = 0;
  size_t end = 0;
  if (!parse_ip(frame, out, udp_at, end) || frame.size() < udp_at + kUdpBytes) return out;
  if (out.carrier) {
    const bool outer_ce = (outer_class & kEcnMask) == kEcnMask;
    const uint8_t ecn = outer_ce ? kEcnMask : out.traffic_class & kEcnMask;
    out.traffic_class = static_cast<uint8_t>((outer_class & ~kEcnMask) | ecn);
  }
  const uint8_t* udp = frame.data() + udp_at;
  out.src_port = get16(udp);
  out.dst_port = get16(udp + 2);
  if (out.dst_port != udp_port) return out;
  out.datagram_at = udp_at + kUdpBytes;
  const bool whole = end <= frame.size() && end >= out.datagram_at + wire::kBthBytes &&
                     get16(udp + 4) == end - udp_at;
  out.kind = whole ? FrameKind::roce : FrameKind::malformed;
  if (whole) out.datagram_bytes = end - out.datagram_at;
  // A switch keeps the old lengths, or rewrites that of IP alone, so the frame bounds the bytes left. Fragments are ignored.
  if (end > out.datagram_at) out.left_bytes = std::min(end, frame.size()) - std::min(out.datagram_at, frame.size());
  return out;
}

void make_segment(std::span<uint8_t> frame, const Frame& joined, uint16_t number) {
  uint8_t* ip = frame.data() + joined.ip_at;
  const size_t udp_bytes = frame.size() - joined.datagram_at + kUdpBytes;
  put16(frame.data() + joined.datagram_at - 4, udp_bytes);
  if (ip[0] >> 4 == 6) {
    put16(ip + 4, udp_bytes);
    return;
  }
  put16(ip + 2, frame.size() - joined.ip_at);
  put16(ip + 4, static_cast<size_t>(get16(ip + 4)) + number);
}

bool icrc_is_right(std::span<const uint8_t> frame, const Frame& parsed) {
  return wire::check_ip(frame.subspan(parsed.ip_at)) == wire::FrameCheck::good;
}

std::array<uint8_t, kPauseFrameBytes> pause_frame(const Mac& source, const Pause& pause) {
  std::array<uint8_t, kPauseFrameBytes> frame{};
  std::copy(kPauseDestination.begin(), kPauseDestination.end(), frame.begin());
  std::copy(source.begin(), source.end(), frame.begin() + 6);
  put16(&frame[12], kMacControl);
  put16(&frame[14], kPriorityFlowControl);
  put16(&frame[16], pause.enabled);
  for (size_t i = 0; i < pause.quanta.size(); ++i) put16(&frame[18 + 2 * i], pause.quanta[i]);
  return frame;
}

std::optional<Pause> parse_pause(std::span<const uint8_t> frame) {
  constexpr size_t kNeededBytes = 18 + 16;
  if (frame.size() < kNeededBytes || get16(&frame[12]) != kMacControl || get16(&frame[14]) != kPriorityFlowControl) {
    return std::nullopt;
  }
  Pause pause;
  pause.enabled = frame[17];
  for (size_t i = 0; i < pause.quanta.size(); ++i) pause.quanta[i] = get16(&frame[18 + 2 * i]);
  return pause;
}

void PauseState::on_pause(const Pause& pause, Nanos now) {
  ++frames_;
  for (size_t i = 0; i < until_ns_.size(); ++i) {
    if (((pause.enabled >> i) & 1) == 0) continue;
    if (until_ns_[i] > since_ns_[i]) ended_ns_ += std::min(until_ns_[i], now) - since_ns_[i];
    since_ns_[i] = now;
    until_ns_[i] = now + (pause.quanta[i] * kQuantumBits * 1'000'000'000 + link_bps_ - 1) / link_bps_;
  }
}

Nanos PauseState::paused_until(uint8_t priority, Nanos now) const {
  return until_ns_[priority] > now ? until_ns_[priority] : kNever;
}

int64_t PauseState::paused_ns(Nanos now) const {
  int64_t total_ns = ended_ns_;
  for (size_t i = 0; i < until_ns_.size(); ++i) {
    if (until_ns_[i] > since_ns_[i]) total_ns += std::min(until_ns_[i], now) - since_ns_[i];
  }
  return total_ns;
}

}  // namespace etloop::ethernet
