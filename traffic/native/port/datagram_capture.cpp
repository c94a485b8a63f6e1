#include "port/datagram_capture.h"

#include <algorithm>
#include <cstring>

namespace etloop {
namespace {

constexpr size_t kIdAt = 4;  // offset in the IPv4 header
constexpr size_t kChecksumAt = 10;

// Update the IPv4 checksum for an identification changed from 0 to `id` (RFC 1624, equation 3).
void renumber(uint8_t* ip, uint16_t id) {
  ip[kIdAt] = static_cast<uint8_t>(id >> 8);
  ip[kIdAt + 1] = static_cast<uint8_t>(id);
  uint32_t sum = static_cast<uint16_t>(~((ip[kChecksumAt] << 8) | ip[kChecksumAt + 1]));
  sum += id;
  sum = (sum & 0xFFFF) + (sum >> 16);
  const auto checksum = static_cast<uint16_t>(~sum);
  ip[kChecksumAt] = static_cast<uint8_t>(checksum >> 8);
  ip[kChecksumAt + 1] = static_cast<uint8_t>(checksum);
}

}  // namespace

void DatagramCapture::sent(const wire::IpFlow& flow, uint8_t traffic_class, std::span<const uint8_t> datagrams,
                           size_t segment_bytes, bool counts_ids, Nanos now) {
  if (capture_ == nullptr) return;
  const ethernet::Path path{.source = {}, .destination = {}, .tag = {}, .flow = flow};
  std::array<uint8_t, ethernet::kMaxHeaderBytes> header{};
  uint16_t id = 0;
  for (size_t at = 0; at < datagrams.size(); at += segment_bytes, id += counts_ids ? 1 : 0) {
    const auto datagram = datagrams.subspan(at, std::min(segment_bytes, datagrams.size() - at));
    const size_t bytes = ethernet::put_headers(path, traffic_class, id, datagram.size(), header);
    capture_->note(true, std::span(header).first(bytes), datagram, now);
  }
}

uint16_t DatagramCapture::find_id(std::span<const uint8_t> frame, size_t ip_at, size_t datagram_bytes) {
  uint32_t present = 0;
  std::memcpy(&present, frame.data() + frame.size() - wire::kIcrcBytes, sizeof present);
  const uint32_t difference = present ^ wire::icrc_of_ip(frame.subspan(ip_at));
  const auto [at, is_new] = deltas_.try_emplace(datagram_bytes);
  if (is_new) {
    // The change of the ICRC by a field depends only on the following length: compute it with any packet of this length.
    const auto payload_bytes = static_cast<uint32_t>(datagram_bytes - wire::kBthBytes - wire::kIcrcBytes);
    const wire::Packet packet{.opcode = wire::Opcode::write_middle, .payload_bytes = payload_bytes};
    for (uint16_t id = 0; id < kTriedIds; ++id) at->second[id] = wire::icrc({}, 0, packet) ^ wire::icrc({}, id, packet);
  }
  for (uint16_t id = 0; id < kTriedIds; ++id) {
    if (at->second[id] == difference) return id;
  }
  return 0;
}

void DatagramCapture::received(const Datagram& datagram, const IpAddress& dst_ip, uint16_t udp_port, Nanos at_ns) {
  if (capture_ == nullptr) return;
  const ethernet::Path path{
      .source = {}, .destination = {}, .tag = {}, .flow = {datagram.src_ip, dst_ip, datagram.src_port, udp_port}};
  frame_.resize(ethernet::kMaxHeaderBytes + datagram.bytes.size());
  const size_t header = ethernet::put_headers(path, datagram.traffic_class, 0, datagram.bytes.size(), frame_);
  frame_.resize(header + datagram.bytes.size());
  if (!datagram.bytes.empty()) std::memcpy(frame_.data() + header, datagram.bytes.data(), datagram.bytes.size());
  constexpr size_t kIpAt = 14;
  const bool whole = datagram.bytes.size() % 4 == 0 && datagram.bytes.size() >= wire::kBthBytes + wire::kIcrcBytes;
  if (whole && dst_ip.is_v4()) renumber(frame_.data() + kIpAt, find_id(frame_, kIpAt, datagram.bytes.size()));
  capture_->note(false, frame_, {}, at_ns);
}

}  // namespace etloop
