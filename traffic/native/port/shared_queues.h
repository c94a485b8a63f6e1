// What the queues of one port have in common where each has all of the port's addresses: what sorts packets between them, and
// which priorities of the link are paused. Their ports are opened one after the other, the first queue's first; after that only
// the pauses change.
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

struct SharedQueues {
  explicit SharedQueues(uint32_t count, uint32_t base) : queues(count), first_qpn(base) {
    for (auto& until_ns : paused_until_ns) until_ns.store(0, std::memory_order_relaxed);
  }

  // kNever: not paused; else when it ends.
  Nanos paused_until(uint8_t priority, Nanos now) const {
    const Nanos until_ns = paused_until_ns[priority & 7U].load(std::memory_order_relaxed);
    return until_ns > now ? until_ns : kNever;
  }

  uint32_t queues;
  uint32_t first_qpn;
  XdpProgram program;     // of an xdp port, once its first queue is open
  int fanout_group = -1;  // of a packet port, once its first queue is open
  std::array<std::atomic<Nanos>, 8> paused_until_ns;
};

// Classic BPF that returns the queue of a RoCEv2 packet by its queue pair number, as `dealt_queue` does.
// For sockets that share a UDP port (SO_ATTACH_REUSEPORT_CBPF): it sees what follows the UDP header.
std::vector<sock_filter> steering_of_datagrams(uint32_t queues, uint32_t first_qpn);
// The same set up, of a port's socket that has just been bound.
Result<void> steer_datagrams(int fd, const PortConfig& config);
Sharing sharing_of(const PortConfig& config);
// For packet sockets (PACKET_FANOUT_CBPF): what is neither IPv4 without options nor IPv6 goes to the first.
std::vector<sock_filter> steering_of_frames(uint32_t queues, uint32_t first_qpn);

}  // namespace etloop
