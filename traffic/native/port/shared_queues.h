// State shared by the queues of one port that all have its addresses: the distribution of packets, and the paused priorities.
// Ports are opened one after the other, the first queue's first; afterwards only the pauses change.
#pragma once

#include <linux/filter.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "port/device_port.h"
#include "port/udp_socket.h"
#include "port/xdp/xdp_program.h"

namespace etloop {

inline constexpr uint32_t kQpnWord = 4;  // offset in the BTH: eight reserved bits and the QPN

struct SharedQueues {
  explicit SharedQueues(uint32_t count, uint32_t base) : queues(count), first_qpn(base) {
    for (auto& until_ns : paused_until_ns) until_ns.store(0, std::memory_order_relaxed);
  }

  // kNever: not paused; otherwise the end of the pause.
  Nanos paused_until(uint8_t priority, Nanos now) const {
    const Nanos until_ns = paused_until_ns[priority & 7U].load(std::memory_order_relaxed);
    return until_ns > now ? until_ns : kNever;
  }

  uint32_t queues;
  uint32_t first_qpn;
  XdpProgram program;     // of an xdp port, set when its first queue opens
  int fanout_group = -1;  // of a packet port, set when its first queue opens
  std::array<std::atomic<Nanos>, 8> paused_until_ns;
};

// Return a classic BPF program that computes the queue of a RoCEv2 packet from its QPN, like `dealt_queue`. For sockets that
// share a UDP port (SO_ATTACH_REUSEPORT_CBPF): it sees the data after the UDP header.
std::vector<sock_filter> steering_of_datagrams(uint32_t queues, uint32_t first_qpn);
// Attach it to a port's socket that has just been bound.
Result<void> steer_datagrams(int fd, const PortConfig& config);
Sharing sharing_of(const PortConfig& config);
// For packet sockets (PACKET_FANOUT_CBPF): packets other than IPv4 without options and IPv6 go to the first queue.
std::vector<sock_filter> steering_of_frames(uint32_t queues, uint32_t first_qpn);

}  // namespace etloop
