// Ethernet, IP and UDP headers around a RoCEv2 datagram, as a network card writes and reads them. Pure: bytes in, bytes out.
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
// The longest headers before a datagram: Ethernet with a tag, an outer IPv6 header, IPv6, UDP.
inline constexpr size_t kMaxHeaderBytes = 14 + kTagBytes + usid::kOuterHeaderBytes + 40 + 8;
inline constexpr uint8_t kHopLimit = 64;

struct Tag {
  uint16_t id = 0;
  uint8_t priority = 0;
};

// What of a flow's headers does not change from packet to packet.
struct Path {
  Mac source{};
  Mac destination{};
  std::optional<Tag> tag;
  wire::IpFlow flow;
  uint8_t hop_limit = kHopLimit;
  // Of an outer IPv6 header that leads the packet by segments; nullptr: there is none. The flow is IPv6 then.
  const usid::Route* segments = nullptr;
};

// Of an IPv6 packet with that UDP source port.
constexpr uint32_t flow_label(uint16_t src_port) { return src_port & 0x3FFFU; }

size_t header_bytes(const Path& path);

// Writes Ethernet, IP and UDP headers for a datagram of `datagram_bytes`; returns their length. UDP checksum 0 as
// network cards send it (RFC 6935 allows it for tunnels over IPv6; IBTA annex A17.3.2), IPv4 identification `ip_id`, DF
// set, IPv6 flow label one from which Linux would derive the source port.
size_t put_headers(const Path& path, uint8_t traffic_class, uint16_t ip_id, size_t datagram_bytes, std::span<uint8_t> out);

enum class FrameKind : uint8_t {
  roce,       // UDP to the RoCE port, whole; the ICRC is not looked at
  pause,      // priority flow control
  other,
  malformed,  // says it is RoCEv2, and is cut short or fragmented
};

struct Frame {
  FrameKind kind = FrameKind::other;
  IpAddress src_ip{};
  IpAddress dst_ip{};
  uint16_t src_port = 0;
  uint16_t dst_port = 0;
  uint8_t traffic_class = 0;
  std::optional<Tag> tag;
  size_t ip_at = 0;        // offset of the IP header that the datagram is in
  std::optional<IpAddress> carrier;  // destination of an outer IPv6 header, where there is one
  size_t datagram_at = 0;  // of BTH
  size_t datagram_bytes = 0;
  size_t left_bytes = 0;   // of the datagram, in a frame that a switch cut: its lengths may name what it was, or what it is
};

// Looks at a frame without FCS. `udp_port` is the RoCE port of the run.
Frame parse(std::span<const uint8_t> frame, uint16_t udp_port);

// Corrects the lengths of a frame that was cut out of a joined one, and its IPv4 identification: the joined one's and
// `number`, as the kernel numbers segments.
void make_segment(std::span<uint8_t> frame, const Frame& joined, uint16_t number);

// Whether the ICRC at the end of a frame of kind roce is right.
bool icrc_is_right(std::span<const uint8_t> frame, const Frame& parsed);

inline constexpr size_t kLeastFrameBytes = 60;  // of the shortest frame, without FCS
inline constexpr size_t kPauseFrameBytes = kLeastFrameBytes;
using Quanta = std::array<uint16_t, 8>;          // per priority, of 512 bit times

struct Pause {
  uint8_t enabled = 0;  // bit i: the time of priority i counts
  Quanta quanta{};
};
// IEEE 802.1Qbb: destination 01:80:C2:00:00:01, EtherType 0x8808, opcode 0x0101.
std::array<uint8_t, kPauseFrameBytes> pause_frame(const Mac& source, const Pause& pause);
std::optional<Pause> parse_pause(std::span<const uint8_t> frame);

// Until when each priority is paused by what the peer said.
class PauseState {
 public:
  explicit PauseState(int64_t link_bps) : link_bps_(link_bps) {}
  void on_pause(const Pause& pause, Nanos now);
  // kNever: not paused; else when it ends.
  Nanos paused_until(uint8_t priority, Nanos now) const;
  // Time that priorities spent paused, added up.
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
