// UDP sockets configured for RoCEv2, with errors that name the remedy.
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
// Whether a failed send means that the link, the address or the route is gone, which may return: the packet is lost, as on a
// link that is cut behind a switch, and the transport repairs it.
bool is_lost_with_link(int code);

// A socket address of the kernel.
struct SocketAddress {
  union {
    sockaddr any{};
    sockaddr_in four;
    sockaddr_in6 six;
  };
  socklen_t length = sizeof(sockaddr_in6);  // capacity, until an address is set

  IpAddress ip() const;
  uint16_t port() const { return ntohs(four.sin_port); }
};
static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
SocketAddress socket_address(const IpAddress& ip, uint16_t port);

// How sockets of the engine share an address and port: alone, the first (which must be exclusive at first), or a further one.
enum class Sharing : uint8_t { alone, first, joins };
// Open a non-blocking socket bound to (ip, udp_port) with GRO and traffic class. An error has the address, the reason and the
// remedy.
Result<Descriptor> open_receiver(const IpAddress& ip, uint16_t udp_port, int64_t buffer_bytes, Sharing sharing = Sharing::alone);

// Whether the kernel accepts a priority per packet (SO_PRIORITY as control message, Linux 6.14).
bool packets_have_priorities(const IpAddress& ip);

struct SenderOptions {
  uint8_t traffic_class = 0;
  bool segmentation_offload = true;
  bool departure_times = false;  // honoured by the kernel's queueing discipline (departures.h)
  uint8_t hop_limit = 0;  // TTL; 0: default
  int priority = -1;  // SO_PRIORITY, which VLAN interfaces map to tags; -1: default
  bool shares_port = false;  // with other queues of the port, or with a socket of another traffic class
};
// Let further sockets bind the port of a bound socket; they ask for it before they bind.
Result<void> share_port(int fd);
// Enable departure times on the monotonic clock for a socket. False: errno has the reason.
bool allow_departures(int fd);
// Open a non-blocking unconnected socket bound to (ip, src_port) that never fragments, so that the IPv4 identification is
// predictable.
Result<Descriptor> open_sender(const IpAddress& ip, uint16_t src_port, const SenderOptions& options);

}  // namespace etloop
