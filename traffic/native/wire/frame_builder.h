// Packets <-> datagram bytes as a real port sends them: BTH to ICRC, in buffers that already hold the payload.
//
// A run of WRITE_MIDDLE packets differs from the last such run only in twelve bytes a packet, so those are patched and
// the ICRC is put together by linearity: base of the run ^ IP identification ^ AckReq ^ PSN, one table look-up each.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "wire/packet_run.h"
#include "wire/wire.h"

namespace etloop {

// Writes one whole datagram; returns its length. `out` holds at least wire::datagram_bytes of the packet.
size_t build_datagram(const wire::IpFlow& flow, uint16_t ip_id, const wire::Packet& packet, std::span<uint8_t> out);

// What the IPv4 identification of packet i of a run will be: segments of one send are numbered by the kernel,
// datagrams sent one by one all have 0. IPv6 has none.
enum class IpIds : uint8_t { zero, counting };

class MiddleRun {
 public:
  // Of one IP packet, which a segmented send is until it leaves; an IPv6 packet would hold 20 more.
  static constexpr size_t kMaxUdpPayloadBytes = 65507;
  static constexpr uint32_t kMaxSegments = 64;          // UDP_MAX_SEGMENTS of every kernel that has UDP_SEGMENT

  explicit MiddleRun(uint32_t payload_bytes);

  // The most packets with this payload that fit one send.
  static uint32_t max_segments(uint32_t payload_bytes);

  // The datagrams of a run with constant payload, one behind the other. Valid until the next call.
  std::span<uint8_t> build(const wire::IpFlow& flow, const PacketRun& run, IpIds ids);

  size_t segment_bytes() const { return segment_bytes_; }

 private:
  void lay_out(uint32_t payload_bytes);

  uint32_t payload_bytes_ = 0;
  size_t segment_bytes_ = 0;
  std::vector<uint8_t> datagrams_;
  // What a field value changes in the ICRC of a MIDDLE with this payload, in any flow.
  std::array<uint32_t, kMaxSegments> ip_id_delta_{};
  std::array<std::array<uint32_t, 256>, 3> psn_delta_{};
  uint32_t ack_req_delta_ = 0;
};

}  // namespace etloop
