// Ethernet, IP and UDP headers of a RoCEv2 datagram, as a NIC writes and reads them. Pure: bytes in, bytes out.
// Sources: IEEE 802.3 and 802.1Q (tags, priority flow control), RFC 791, RFC 8200, RFC 768, IBTA annex A17.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "base/ip_address.h"
#include "base/time.h"
#include "wire/usid.h"
#include "wire/wire.h"

namespace etloop::ethernet {

using Mac = std::array<uint8_t, 6>;

inline constexpr size_t kMacsBytes = 12;
inline constexpr size_t kTagBytes = 4;
// Longest headers before a datagram: Ethernet with a VLAN tag, an outer IPv6 header, IPv6, UDP.
inline constexpr size_t kMaxHeaderBytes = 14 + kTagBytes + usid::kOuterHeaderBytes + 40 + 8;
inline constexpr uint8_t kHopLimit = 64;

struct Tag {
  uint16_t id = 0;
  uint8_t priority = 0;
};

// Header fields of a flow that are the same in each packet.
struct Path {
  Mac source{};
  Mac destination{};
  std::optional<Tag> tag;
  wire::IpFlow flow;
  uint8_t hop_limit = kHopLimit;
  // SRv6 route in an outer IPv6 header, or nullptr. Requires an IPv6 flow.
  const usid::Route* segments = nullptr;
};

// Return the IPv6 flow label of packets with this UDP source port.
constexpr uint32_t flow_label(uint16_t src_port) { return src_port & 0x3FFFU; }

size_t header_bytes(const Path& path);

// Write Ethernet, IP and UDP headers for a datagram of `datagram_bytes`; return their length. The UDP checksum is 0, as NICs send
// it (RFC 6935 allows it for tunnels over IPv6; IBTA annex A17.3.2). IPv4: identification `ip_id`, DF set. IPv6: the flow label
// from which Linux derives the source port.
size_t put_headers(const Path& path, uint8_t traffic_class, uint16_t ip_id, size_t datagram_bytes, std::span<uint8_t> out);

enum class FrameKind : uint8_t {
  roce,       // complete, UDP to the RoCE port; the ICRC is not checked
  pause,      // priority flow control
  other,
  malformed,  // RoCEv2 by its port, but truncated or fragmented
};

struct Frame {
  FrameKind kind = FrameKind::other;
  IpAddress src_ip{};
  IpAddress dst_ip{};
  uint16_t src_port = 0;
  uint16_t dst_port = 0;
  uint8_t traffic_class = 0;
  std::optional<Tag> tag;
  size_t ip_at = 0;        // offset of the inner IP header
  std::optional<IpAddress> carrier;  // destination of the outer IPv6 header, if there is one
  size_t datagram_at = 0;  // offset of the BTH
  size_t datagram_bytes = 0;
  size_t left_bytes = 0;   // bytes of the datagram in a trimmed frame, whose lengths may be the old or the new ones
};

// Parse a frame without FCS. `udp_port` is the RoCE port of the run.
Frame parse(std::span<const uint8_t> frame, uint16_t udp_port);

// Set the lengths of segment `number` of a coalesced frame (GRO), and its IPv4 identification: that of `joined` plus `number`, as
// the kernel numbers segments.
void make_segment(std::span<uint8_t> frame, const Frame& joined, uint16_t number);

// Whether the ICRC of a frame of kind roce is correct.
bool icrc_is_right(std::span<const uint8_t> frame, const Frame& parsed);

inline constexpr size_t kLeastFrameBytes = 60;  // without FCS
inline constexpr size_t kPauseFrameBytes = kLeastFrameBytes;
using Quanta = std::array<uint16_t, 8>;          // per priority, of 512 bit times

struct Pause {
  uint8_t enabled = 0;  // bit i: quanta[i] is valid
  Quanta quanta{};
};
// IEEE 802.1Qbb: destination 01:80:C2:00:00:01, EtherType 0x8808, opcode 0x0101.
std::array<uint8_t, kPauseFrameBytes> pause_frame(const Mac& source, const Pause& pause);
std::optional<Pause> parse_pause(std::span<const uint8_t> frame);

// Pause state of each priority, from the pause frames received.
class PauseState {
 public:
  explicit PauseState(int64_t link_bps) : link_bps_(link_bps) {}
  void on_pause(const Pause& pause, Nanos now);
  // Return when the pause of a priority ends, or kNever if it is not paused.
  Nanos paused_until(uint8_t priority, Nanos now) const;
  // Return the pause time summed over all priorities.
  int64_t paused_ns(Nanos now) const;
  int64_t frames() const { return frames_; }

 private:
  int64_t link_bps_;
  std::array<Nanos, 8> since_ns_{};
  std::array<Nanos, 8> until_ns_{};
  int64_t ended_ns_ = 0;
  int64_t frames_ = 0;
};

}  // namespace etloop::ethernet
