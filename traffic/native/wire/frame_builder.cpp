#include "wire/frame_builder.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

namespace etloop {
namespace {

static_assert(std::endian::native == std::endian::little);

void put_icrc(uint8_t* at, uint32_t icrc) { std::memcpy(at, &icrc, sizeof icrc); }

// BTH bytes 4 to 11 (IBTA vol. 1, 9.2): FECN/BECN/reserved 0, DestQP, AckReq, PSN.
constexpr size_t kPatchAt = 4;
void put_patch(uint8_t* at, uint32_t dest_qpn, bool ack_req, uint32_t psn) {
  const uint64_t big_endian = (uint64_t{dest_qpn} << 32) | (uint64_t{ack_req} << 31) | psn;
  const uint64_t bytes = __builtin_bswap64(big_endian);
  std::memcpy(at, &bytes, sizeof bytes);
}

}  // namespace

size_t build_datagram(const wire::IpFlow& flow, uint16_t ip_id, const wire::Packet& packet, std::span<uint8_t> out) {
  const size_t total = wire::datagram_bytes(packet.opcode, packet.payload_bytes);
  assert(total <= out.size());
  const size_t headers = wire::encode_headers(packet, out);
  uint8_t* payload = out.data() + headers;
  if (packet.payload != nullptr) {
    std::memcpy(payload, packet.payload, packet.payload_bytes);
  } else {
    std::memset(payload, wire::kPatternByte, packet.payload_bytes);
  }
  const size_t icrc_at = total - wire::kIcrcBytes;
  std::memset(payload + packet.payload_bytes, 0, icrc_at - headers - packet.payload_bytes);
  put_icrc(out.data() + icrc_at, wire::icrc(flow, ip_id, packet));
  return total;
}

MiddleRun::MiddleRun(uint32_t payload_bytes) {
  datagrams_.resize(kMaxUdpPayloadBytes);
  lay_out(payload_bytes);
}

uint32_t MiddleRun::max_segments(uint32_t payload_bytes) {
  const size_t segment_bytes = wire::datagram_bytes(wire::Opcode::write_middle, payload_bytes);
  return std::clamp(static_cast<uint32_t>(kMaxUdpPayloadBytes / segment_bytes), 1U, kMaxSegments);
}

void MiddleRun::lay_out(uint32_t payload_bytes) {
  payload_bytes_ = payload_bytes;
  segment_bytes_ = wire::datagram_bytes(wire::Opcode::write_middle, payload_bytes);
  assert(segment_bytes_ <= kMaxUdpPayloadBytes);
  wire::Packet packet{.opcode = wire::Opcode::write_middle, .payload_bytes = payload_bytes};
  for (uint32_t i = 0; i < max_segments(payload_bytes); ++i) {
    build_datagram({}, 0, packet, std::span(datagrams_).subspan(i * segment_bytes_));
  }
  const uint32_t base = wire::icrc({}, 0, packet);
  for (uint16_t i = 0; i < kMaxSegments; ++i) ip_id_delta_[i] = base ^ wire::icrc({}, i, packet);
  for (size_t byte = 0; byte < psn_delta_.size(); ++byte) {
    for (uint32_t value = 0; value < 256; ++value) {
      packet.psn = value << (8 * byte);
      psn_delta_[byte][value] = base ^ wire::icrc({}, 0, packet);
    }
  }
  packet.psn = 0;
  packet.ack_req = true;
  ack_req_delta_ = base ^ wire::icrc({}, 0, packet);
}

std::span<uint8_t> MiddleRun::build(const wire::IpFlow& flow, const PacketRun& run, IpIds ids) {
  assert(run.head.opcode == wire::Opcode::write_middle && run.head.payload == nullptr);
  assert(run.count >= 1 && run.count <= max_segments(run.head.payload_bytes));
  if (run.head.payload_bytes != payload_bytes_) lay_out(run.head.payload_bytes);

  wire::Packet zeroed = run.head;
  zeroed.ack_req = false;
  zeroed.psn = 0;
  const uint32_t base = wire::icrc(flow, 0, zeroed);
  const bool counting = ids == IpIds::counting && flow.src_ip.is_v4();
  uint32_t until_ack = run.ack_every == 0 ? UINT32_MAX : run.ack_every - run.head.psn % run.ack_every;
  uint8_t* datagram = datagrams_.data();
  for (uint32_t i = 0; i < run.count; ++i, datagram += segment_bytes_) {
    const uint32_t psn = (run.head.psn + i) & wire::kPsnMask;
    bool ack_req = run.count == 1 && run.head.ack_req;
    if (--until_ack == 0 || (psn == wire::kPsnMask && run.ack_every != 0)) {  // the count restarts when the PSN wraps
      ack_req = true;
      until_ack = run.ack_every;
    }
    put_patch(datagram + kPatchAt, run.head.dest_qpn, ack_req, psn);
    put_icrc(datagram + segment_bytes_ - wire::kIcrcBytes,
             base ^ (counting ? ip_id_delta_[i] : 0) ^ (ack_req ? ack_req_delta_ : 0) ^
                 psn_delta_[0][psn & 0xFF] ^ psn_delta_[1][(psn >> 8) & 0xFF] ^ psn_delta_[2][psn >> 16]);
  }
  return {datagrams_.data(), run.count * segment_bytes_};
}

}  // namespace etloop
