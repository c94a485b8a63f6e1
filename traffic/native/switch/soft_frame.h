// What a switch reads and changes in a frame of any protocol. Pure: bytes in, bytes out.
//
// Frames come from hosts that leave work to their network cards: several datagrams joined in one frame, checksums begun and
// not finished. A real card cuts and finishes them before the wire; here they are cut, and the checksum stays with whoever
// reads it, as between the ends of a veth pair.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "switch/switch_model.h"
#include "wire/ethernet.h"

namespace etloop::soft {

// What the kernel puts before a frame with PACKET_VNET_HDR (virtio 1.2, 5.1.6; its header is not C++).
struct OffloadHeader {
  uint8_t flags = 0;
  uint8_t gso_type = 0;
  uint16_t header_bytes = 0;
  uint16_t gso_bytes = 0;  // of a datagram, in a frame that holds several
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
  size_t transport_at = 0;  // 0: no whole UDP or TCP header
  uint64_t flow_key = 0;
};

// Looks at a frame without check sequence.
Headers read_headers(std::span<const uint8_t> frame);

// What a switch may hash of a frame that was read as IP, also of the packet inside it (IP in IP, a routing header skipped).
HashedHeaders read_hashed(std::span<const uint8_t> frame, const Headers& headers);

// Length on a link, check sequence and padding included.
int32_t frame_bytes(size_t bytes);

// Number of datagrams that a joined UDP frame holds; 0 if it is none, or cannot be cut.
size_t datagrams_in(std::span<const uint8_t> frame, const Headers& headers, const OffloadHeader& offload);

// The `number`-th datagram of a joined frame as a frame of its own. `out` has room for headers and `offload.gso_bytes`.
// Returns its length; `offload_out` says what is left to do for its checksum.
size_t cut_datagram(std::span<const uint8_t> frame, const Headers& headers, const OffloadHeader& offload, size_t number,
                    std::span<uint8_t> out, OffloadHeader& offload_out);

// Finishes a checksum that the host left to its card: of RoCEv2 it becomes 0, as network cards send it, of everything else
// the sum itself. Leaves a frame alone that does not hold what `offload` states.
void finish_checksum(std::span<uint8_t> frame, const OffloadHeader& offload);

// Sets DSCP and ECN, and the IPv4 checksum with them. The frame must have been read as IP.
void set_traffic_class(std::span<uint8_t> frame, size_t ip_at, uint8_t traffic_class);

// Of a frame that was read as IPv6.
IpAddress ipv6_destination(std::span<const uint8_t> frame, size_t ip_at);
void set_ipv6_destination(std::span<uint8_t> frame, size_t ip_at, const IpAddress& destination);

// Makes the lengths in IP and UDP headers those of a frame that was cut to `frame.size()`.
void set_lengths(std::span<uint8_t> frame, const Headers& headers);

}  // namespace etloop::soft
