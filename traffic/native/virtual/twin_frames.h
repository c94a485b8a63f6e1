// The twin's packets in flight, and their five-tuples.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "base/ip_address.h"
#include "base/prefetch.h"
#include "core/core_set.h"
#include "core/port.h"
#include "switch/switch_model.h"
#include "wire/ethernet.h"
#include "wire/wire.h"

namespace etloop {

// A packet in flight: headers and inline payload as bytes; pattern payload only as a length.
struct alignas(64) TwinFrame {
  uint32_t datagram_bytes = 0;
  uint16_t src_port = 0;   // of the packet; may differ from its flow's
  uint8_t stored = 0;      // number of stored `bytes`
  bool corrupted = false;  // by its sender
  std::array<uint8_t, kMostStoredBytes> bytes{};

  void append(std::span<const uint8_t> more) {
    std::copy(more.begin(), more.end(), bytes.begin() + stored);
    stored = static_cast<uint8_t>(stored + more.size());
  }
};
static_assert(sizeof(TwinFrame) == 128);

// The index of a frame's state, kept separately so that all of it can be prefetched at once: a frame's own cache line is rarely
// cached by then.
struct TwinHeading {
  uint32_t flow = 0;  // for a frame of a UDP stream, the stream
  uint32_t dest_qpn = 0;
};

struct alignas(kLineBytes) TwinFlow {
  IpAddress src_ip = {};
  IpAddress dst_ip = {};
  uint16_t src_port = 0;
  uint8_t traffic_class = 0;
  uint16_t dst_address = 0;  // index among the receiving port's addresses, or its card's on all planes
  int32_t dst_port = -1;     // port of the plan
  uint32_t source = 0;       // attachment
  uint64_t key = 0;
  uint32_t destination = 0;  // attachment
  uint32_t around_bytes = 0;  // Ethernet frame bytes around the datagram
};

inline uint8_t class_of(const TwinFlow& flow, const ClassMarks& marks) {
  return marks.traffic_class == kFlowClass ? flow.traffic_class : static_cast<uint8_t>(marks.traffic_class);
}

inline constexpr uint8_t kUdpProtocol = 17;

// The key by which switches choose a path.
inline uint64_t key_of(const IpAddress& src_ip, const IpAddress& dst_ip, uint16_t src_port,
                       uint16_t dst_port = wire::kRoceUdpPort) {
  return flow_key({src_ip, dst_ip, kUdpProtocol, src_port, dst_port});
}

// The hashable headers of a UDP packet, with the flow label set by the engine's ports.
inline HashedHeaders headers_of(const IpAddress& src_ip, const IpAddress& dst_ip, uint16_t src_port, uint16_t dst_port) {
  HashedHeaders headers;
  headers.outer = {src_ip, dst_ip, kUdpProtocol, src_port, dst_port};
  if (!dst_ip.is_v4()) headers.flow_label = ethernet::flow_label(src_port);
  return headers;
}

}  // namespace etloop
