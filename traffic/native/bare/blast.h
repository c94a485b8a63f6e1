// The bare kernel path that our speed is measured against: sockets of the same kind as a port's and nothing else, no
// protocol on top.
//
// One thread or process sends and one receives, or one pings and one answers. Every call ends by itself: after its
// duration or count, or when nothing has arrived for kBlastSilenceNs.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ip_address.h"
#include "base/result.h"
#include "port/device_port.h"

namespace etloop {

inline constexpr int64_t kBlastSilenceNs = 2'000'000'000;

struct BlastSettings {
  IpAddress src_ip = {};  // of a receiver: unused
  IpAddress dst_ip = {};
  uint16_t udp_port = 0;
  uint32_t segment_bytes = 4112;  // a WRITE_MIDDLE of path MTU 4096, without UDP header
  uint32_t segments = 15;         // of one send; 1: no segmentation offload. Frames have none: so many in one call
  int64_t duration_ns = 0;
  Backend backend = Backend::udp;  // udp, packet or xdp
  // Of udp: in the calls that RC WRITE messages of so many full packets take, whose FIRST (RETH) and LAST (immediate) are longer
  // than a MIDDLE, so that the kernel cuts neither together with those; at least 3. 0: all calls are alike.
  uint32_t message_packets = 0;
};

inline constexpr uint32_t kMostBlastBatch = 256;

struct BlastTotals {
  int64_t datagrams = 0;
  int64_t bytes = 0;        // UDP payload
  int64_t duration_ns = 0;  // of a receiver: from its first datagram to its last
};

// Sends as fast as the kernel takes it, for duration_ns.
Result<BlastTotals> blast_send(const BlastSettings& settings);

// Receives at dst_ip for duration_ns after the first datagram.
Result<BlastTotals> blast_receive(const BlastSettings& settings);

struct ExchangeSettings {
  IpAddress src_ip = {};
  IpAddress dst_ip = {};
  uint16_t udp_port = 0;  // at both ends
  uint32_t datagram_bytes = 64;
  uint32_t batch = 64;  // of one system call, 1 to kMostBlastBatch
  int64_t duration_ns = 0;
};

// Sends and receives in turn, a batch at a time, datagram by datagram (sendmmsg, recvmmsg), as the other end does; for
// duration_ns after the first datagram came. Counts what came.
Result<BlastTotals> blast_exchange(const ExchangeSettings& settings);

struct PingSettings {
  IpAddress src_ip = {};
  IpAddress dst_ip = {};
  uint16_t udp_port = 0;  // at both ends
  uint32_t message_bytes = 64;
  uint32_t count = 0;
};

// Sends datagrams one after the other, each after the answer to the one before (or 20 ms without one), busy-polling,
// until `count` were answered. Gives the round-trip times in nanoseconds, sorted.
Result<std::vector<int64_t>> ping(const PingSettings& settings);

// Answers datagrams at dst_ip, busy-polling: at least `count`, and then until 40 ms pass without one.
Result<void> pong(const PingSettings& settings);

}  // namespace etloop
