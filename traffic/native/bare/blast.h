// The bare kernel path as the reference for the engine's speed: sockets like a port's, without a protocol.
//
// One thread or process sends and one receives, or one pings and one answers. Every call ends by itself: after its duration or
// count, or after kBlastSilenceNs without an arrival.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ip_address.h"
#include "base/result.h"
#include "port/device_port.h"

namespace etloop {

inline constexpr int64_t kBlastSilenceNs = 2'000'000'000;

struct BlastSettings {
  IpAddress src_ip = {};  // unused by a receiver
  IpAddress dst_ip = {};
  uint16_t udp_port = 0;
  uint32_t segment_bytes = 4112;  // a WRITE_MIDDLE of path MTU 4096, without UDP header
  uint32_t segments = 15;         // datagrams per send; 1: no segmentation offload. For frames: frames per call
  int64_t duration_ns = 0;
  Backend backend = Backend::udp;  // udp, packet or xdp
  // For udp: use the calls of RC WRITE messages with so many full packets, whose FIRST (RETH) and LAST (immediate) are longer
  // than a MIDDLE, so that the kernel segments neither with those; at least 3. 0: all calls are alike.
  uint32_t message_packets = 0;
};

inline constexpr uint32_t kMostBlastBatch = 256;

struct BlastTotals {
  int64_t datagrams = 0;
  int64_t bytes = 0;        // UDP payload
  int64_t duration_ns = 0;  // of a receiver: from first to last datagram
};

// Send as fast as the kernel accepts, for duration_ns.
Result<BlastTotals> blast_send(const BlastSettings& settings);

// Receive at dst_ip for duration_ns after the first datagram.
Result<BlastTotals> blast_receive(const BlastSettings& settings);

struct ExchangeSettings {
  IpAddress src_ip = {};
  IpAddress dst_ip = {};
  uint16_t udp_port = 0;  // at both ends
  uint32_t datagram_bytes = 64;
  uint32_t batch = 64;  // per system call, 1 to kMostBlastBatch
  int64_t duration_ns = 0;
};

// Send and receive alternately, one batch at a time, datagram by datagram (sendmmsg, recvmmsg), like the other end, for
// duration_ns after the first arrival. Counts arrivals.
Result<BlastTotals> blast_exchange(const ExchangeSettings& settings);

struct PingSettings {
  IpAddress src_ip = {};
  IpAddress dst_ip = {};
  uint16_t udp_port = 0;  // at both ends
  uint32_t message_bytes = 64;
  uint32_t count = 0;
};

// Send datagrams one at a time, each after the answer to the previous one (or 20 ms without one), busy-polling, until `count`
// were answered. Returns the sorted round-trip times in nanoseconds.
Result<std::vector<int64_t>> ping(const PingSettings& settings);

// Answer datagrams at dst_ip, busy-polling: at least `count`, and then until 40 ms pass without one.
Result<void> pong(const PingSettings& settings);

}  // namespace etloop
