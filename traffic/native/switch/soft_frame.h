// Reads and modifies the headers of a frame of any protocol, as a switch does. Pure: bytes in, bytes out.
//
// Hosts leave work to their NICs: a frame may hold several joined datagrams (GSO) and an unfinished checksum. A NIC segments and
// finishes them before the wire; here they are segmented, and the checksum is left to the reader, as between the ends of a veth
// pair.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "switch/switch_model.h"
#include "wire/ethernet.h"

namespace etloop::soft {

// Header that the kernel prepends to a frame with PACKET_VNET_HDR (virtio 1.2, 5.1.6; its header is not C++).
struct OffloadHeader {
  uint8_t flags = 0;
  uint8_t gso_type = 0;
  uint16_t header_bytes = 0;
  uint16_t gso_bytes = 0;  // size of a datagram in a joined frame
  uint16_t checksum_start = 0;
  uint16_t checksum_offset = 0;
};
static_assert(sizeof(OffloadHeader) == 10);
inline constexpr uint8_t kNeedsChecksum = 1;
inline constexpr uint8_t kGsoNone = 0;
inline constexpr uint8_t kGsoEcn = 0x80;
inline constexpr uint8_t kGsoUdpL4 = 5;

inline constexpr int32_t kCheckSequenceBytes = 4;
inline constexpr int32_t kLeastFrameBytes = 64;

enum class FrameUse : uint8_t { ip, pause, other };

struct Headers {
  FrameUse use = FrameUse::other;
  ethernet::Mac destination{};
  IpAddress src_ip{};
  IpAddress dst_ip{};
  uint8_t protocol = 0;
  uint16_t src_port = 0;
  uint16_t dst_port = 0;
  uint8_t dscp = 0;
  uint8_t ecn = 0;
  size_t ip_at = 0;
  size_t transport_at = 0;  // 0: no complete UDP or TCP header
  uint64_t flow_key = 0;
};

// Parse a frame without FCS.
Headers read_headers(std::span<const uint8_t> frame);

// Return the hashable fields of an IP frame, including those of an encapsulated packet (IP in IP, a routing header skipped).
HashedHeaders read_hashed(std::span<const uint8_t> frame, const Headers& headers);

// Frame length on a link, with FCS and padding.
int32_t frame_bytes(size_t bytes);

// Return the number of datagrams in a joined UDP frame; 0 if it is not one, or cannot be segmented.
size_t datagrams_in(std::span<const uint8_t> frame, const Headers& headers, const OffloadHeader& offload);

// Copy datagram `number` of a joined frame to `out` as a frame, which needs room for headers and `offload.gso_bytes`. Returns its
// length; `offload_out` describes what its checksum lacks.
size_t cut_datagram(std::span<const uint8_t> frame, const Headers& headers, const OffloadHeader& offload, size_t number,
                    std::span<uint8_t> out, OffloadHeader& offload_out);

// Finish a checksum that the host left to its NIC: 0 for RoCEv2, as NICs send it; the real checksum for other protocols. A frame
// that does not match `offload` is not changed.
void finish_checksum(std::span<uint8_t> frame, const OffloadHeader& offload);

// Set DSCP and ECN, and update the IPv4 checksum. The frame must be an IP frame.
void set_traffic_class(std::span<uint8_t> frame, size_t ip_at, uint8_t traffic_class);

// Get and set the destination of an IPv6 frame.
IpAddress ipv6_destination(std::span<const uint8_t> frame, size_t ip_at);
void set_ipv6_destination(std::span<uint8_t> frame, size_t ip_at, const IpAddress& destination);

// Set the lengths in the IP and UDP headers of a frame trimmed to `frame.size()`.
void set_lengths(std::span<uint8_t> frame, const Headers& headers);

}  // namespace etloop::soft
