// Packets -> datagram bytes as a real port sends them: BTH to ICRC, in buffers that already hold the payload.
//
// Consecutive runs of WRITE_MIDDLE packets differ in twelve bytes per packet. These are patched, and the ICRC is composed by
// linearity: base of the run ^ IP identification ^ AckReq ^ PSN, one table look-up each.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "wire/packet_run.h"
#include "wire/wire.h"

namespace etloop {

// Write one datagram; return its length. `out` must hold wire::datagram_bytes of the packet.
size_t build_datagram(const wire::IpFlow& flow, uint16_t ip_id, const wire::Packet& packet, std::span<uint8_t> out);

// IPv4 identifications in a run: the kernel numbers the segments of one send, datagrams sent one by one have 0. IPv6 has none.
enum class IpIds : uint8_t { zero, counting };

class MiddleRun {
 public:
  // Limit of one IPv4 packet, which also bounds a segmented send; IPv6 would allow 20 bytes more.
  static constexpr size_t kMaxUdpPayloadBytes = 65507;
  static constexpr uint32_t kMaxSegments = 64;          // smallest UDP_MAX_SEGMENTS of kernels with UDP_SEGMENT

  explicit MiddleRun(uint32_t payload_bytes);

  // Return the largest number of packets with this payload in one send.
  static uint32_t max_segments(uint32_t payload_bytes);

  // Build the datagrams of a run with constant payload, back to back. The result is valid until the next call.
  std::span<uint8_t> build(const wire::IpFlow& flow, const PacketRun& run, IpIds ids);

  size_t segment_bytes() const { return segment_bytes_; }

 private:
  void lay_out(uint32_t payload_bytes);

  uint32_t payload_bytes_ = 0;
  size_t segment_bytes_ = 0;
  std::vector<uint8_t> datagrams_;
  // ICRC changes by field value, for a MIDDLE with this payload in any flow.
  std::array<uint32_t, kMaxSegments> ip_id_delta_{};
  std::array<std::array<uint32_t, 256>, 3> psn_delta_{};
  uint32_t ack_req_delta_ = 0;
};

}  // namespace etloop
