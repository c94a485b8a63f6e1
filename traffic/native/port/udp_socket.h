// UDP sockets set up for RoCEv2: what the kernel must be asked for, and error texts that say what to do.
#pragma once

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/ip_address.h"
#include "base/result.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace etloop {

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

std::string errno_text(int code);

// An address and port as the kernel takes and gives them.
struct SocketAddress {
  union {
    sockaddr any{};
    sockaddr_in four;
    sockaddr_in6 six;
  };
  socklen_t length = sizeof(sockaddr_in6);  // what fits, until an address is there

  IpAddress ip() const;
  uint16_t port() const { return ntohs(four.sin_port); }
};
static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
SocketAddress socket_address(const IpAddress& ip, uint16_t port);

// Whether several sockets of ours have one address and port: alone, the first of them, which nobody may have before, or
// another.
enum class Sharing : uint8_t { alone, first, joins };
// A non-blocking socket bound to (ip, udp_port) that joins datagrams and tells their traffic class. A failure
// says which address, why, and what to do.
Result<Descriptor> open_receiver(const IpAddress& ip, uint16_t udp_port, int64_t buffer_bytes, Sharing sharing = Sharing::alone);

// Whether the kernel takes the priority of a single packet with its send (SO_PRIORITY as control message, Linux 6.14).
bool packets_have_priorities(const IpAddress& ip);

struct SenderOptions {
  uint8_t traffic_class = 0;
  bool segmentation_offload = true;
  bool departure_times = false;  // that the kernel's queueing discipline keeps (departures.h)
  uint8_t hop_limit = 0;  // TTL; 0: the usual
  int priority = -1;  // of the kernel's packets (SO_PRIORITY), which VLAN interfaces map to tags; -1: the usual
  bool shares_port = false;  // with other queues of ours
};
// Lets the packets of a socket carry departure times of the monotonic clock. False: errno says why.
bool allow_departures(int fd);
// A non-blocking unconnected socket bound to (ip, src_port) that never fragments, so that the IPv4 identification is known.
Result<Descriptor> open_sender(const IpAddress& ip, uint16_t src_port, const SenderOptions& options);

}  // namespace etloop
