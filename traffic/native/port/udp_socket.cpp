#include "port/udp_socket.h"

#include <linux/net_tstamp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <system_error>

#ifndef SO_TXTIME
#define SO_TXTIME 61
#endif

namespace etloop {
namespace {

constexpr int kHopLimit = 64;
constexpr int kSendBufferBytes = 4 << 20;  // some 60 segmented sends in a device queue

bool set_option(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof value) == 0;
}

// Exceed the system's limit if permitted; otherwise request up to the limit.
void set_buffer(int fd, int forced_option, int option, int64_t bytes) {
  const int asked = static_cast<int>(std::min<int64_t>(bytes, INT32_MAX / 2));
  if (!set_option(fd, SOL_SOCKET, forced_option, asked)) set_option(fd, SOL_SOCKET, option, asked);
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

Result<Descriptor> new_socket(const IpAddress& ip) {
  const int family = ip.is_v4() ? AF_INET : AF_INET6;
  int fd = socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0 && errno == EMFILE) {
    raise_descriptor_limit();
    fd = socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  }
  if (fd >= 0) return Descriptor(fd);
  std::string why = "cannot open a UDP socket: " + errno_text(errno);
  if (errno == EAFNOSUPPORT) why += "; this kernel has no IPv6, list IPv4 addresses";
  if (errno == EMFILE) why += "; raise the limit of open files (ulimit -n), one is needed per source port";
  return Error{std::move(why)};
}

Error cannot_share() { return {"the kernel lets no sockets share a UDP port (SO_REUSEPORT): " + errno_text(errno)}; }

Result<void> bind_socket(int fd, const IpAddress& ip, uint16_t port, const char* holders) {
  const SocketAddress address = socket_address(ip, port);
  if (bind(fd, &address.any, address.length) == 0) return {};
  const std::string where = ip.text() + " UDP port " + std::to_string(port);
  switch (errno) {
    case EADDRINUSE: return Error{where + " is in use; " + holders};
    case EADDRNOTAVAIL:
      return Error{"address " + ip.text() + " is not on this host; name an address that `ip " + (ip.is_v4() ? "-4" : "-6") +
                   " address` lists" + (ip.is_v4() ? "" : ", and not as tentative")};
    case EACCES: return Error{where + " needs privileges; use a port above 1023"};
    default: return Error{"cannot bind " + where + ": " + errno_text(errno)};
  }
}

}  // namespace

bool is_lost_with_link(int code) {
  switch (code) {
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case EADDRNOTAVAIL:
    case ENODEV:
    case ENXIO: return true;
    default: return false;
  }
}

std::string errno_text(int code) { return std::generic_category().message(code); }

SocketAddress socket_address(const IpAddress& ip, uint16_t port) {
  SocketAddress address;
  address.six = {};
  if (ip.is_v4()) {
    address.four.sin_family = AF_INET;
    address.four.sin_addr.s_addr = htonl(ip.v4());
    address.length = sizeof address.four;
  } else {
    address.six.sin6_family = AF_INET6;
    std::memcpy(&address.six.sin6_addr, ip.bytes.data(), ip.bytes.size());
    address.length = sizeof address.six;
  }
  address.four.sin_port = htons(port);
  return address;
}

IpAddress SocketAddress::ip() const {
  if (any.sa_family == AF_INET) return IpAddress::v4(ntohl(four.sin_addr.s_addr));
  IpAddress address;
  std::memcpy(address.bytes.data(), &six.sin6_addr, address.bytes.size());
  return address;
}

Result<void> share_port(int fd) {
  if (set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1)) return {};
  return cannot_share();
}

bool allow_departures(int fd) {
  const sock_txtime wanted{CLOCK_MONOTONIC, 0};  // fq's clock, which needs no privileges
  return setsockopt(fd, SOL_SOCKET, SO_TXTIME, &wanted, sizeof wanted) == 0;
}

Result<Descriptor> open_receiver(const IpAddress& ip, uint16_t udp_port, int64_t buffer_bytes, Sharing sharing) {
  auto receiver = new_socket(ip);
  if (!receiver) return receiver;
  const int fd = receiver->get();
  set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, buffer_bytes);
  if (!set_option(fd, SOL_UDP, UDP_GRO, 1)) {
    return Error{"the kernel does not join received UDP datagrams (UDP_GRO): " + errno_text(errno) + "; Linux 5.0 does"};
  }
  if (!(ip.is_v4() ? set_option(fd, SOL_IP, IP_RECVTOS, 1) : set_option(fd, SOL_IPV6, IPV6_RECVTCLASS, 1))) {
    return Error{"the kernel does not report the traffic class of datagrams (IP_RECVTOS, IPV6_RECVTCLASS): " + errno_text(errno)};
  }
  // NICs send RoCEv2 over IPv6 with UDP checksum 0 too, which the kernel would drop.
  if (!ip.is_v4() && !set_option(fd, SOL_UDP, UDP_NO_CHECK6_RX, 1)) {
    return Error{"the kernel does not take UDP checksum 0 over IPv6 (UDP_NO_CHECK6_RX): " + errno_text(errno)};
  }
  constexpr const char* kHolders =
      "end the other agent that uses this address, or unload the kernel's software RoCE (modprobe -r rdma_rxe), or "
      "choose another udp_port";
  // The first one binds exclusively, so that it fails if another program of this user shares the port.
  if (sharing == Sharing::joins && !set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1)) return cannot_share();
  if (const auto bound = bind_socket(fd, ip, udp_port, kHolders); !bound) return bound.error();
  if (sharing == Sharing::first && !set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1)) return cannot_share();
  return receiver;
}

bool packets_have_priorities(const IpAddress& ip) {
  const auto sender = new_socket(ip);
  if (!sender) return false;
  // Send to its own port: the result does not depend on any link; the kernel parses the control message first.
  SocketAddress own = socket_address(ip, 0);
  if (bind(sender->get(), &own.any, own.length) != 0 || getsockname(sender->get(), &own.any, &own.length) != 0) return false;
  alignas(cmsghdr) std::array<uint8_t, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_name = &own.any;
  message.msg_namelen = own.length;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SO_PRIORITY;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  return sendmsg(sender->get(), &message, 0) >= 0 || errno != EINVAL;
}

Result<Descriptor> open_sender(const IpAddress& ip, uint16_t src_port, const SenderOptions& options) {
  auto sender = new_socket(ip);
  if (!sender) return sender;
  const int fd = sender->get();
  set_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, kSendBufferBytes);
  set_option(fd, SOL_SOCKET, SO_RCVBUF, 0);  // source ports receive nothing
  // The IPv4 identification is covered by the ICRC, and predictable only with this setting.
  const int hop_limit = options.hop_limit != 0 ? options.hop_limit : kHopLimit;
  const bool is_set = ip.is_v4() ? set_option(fd, SOL_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO) &&
                                       set_option(fd, SOL_IP, IP_TOS, options.traffic_class)
                                 : set_option(fd, SOL_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO) &&
                                       set_option(fd, SOL_IPV6, IPV6_UNICAST_HOPS, hop_limit) &&
                                       set_option(fd, SOL_IPV6, IPV6_TCLASS, options.traffic_class);
  if (ip.is_v4() && options.hop_limit != 0 && !set_option(fd, SOL_IP, IP_TTL, options.hop_limit)) {
    return Error{"cannot set the TTL of a UDP socket: " + errno_text(errno)};
  }
  if (!is_set) {
    return Error{"cannot set don't-fragment and traffic class on a UDP socket: " + errno_text(errno)};
  }
  // After the traffic class, which also sets it. Up to 6 without privileges.
  if (options.priority >= 0 && !set_option(fd, SOL_SOCKET, SO_PRIORITY, options.priority)) {
    return Error{"cannot give packets priority " + std::to_string(options.priority) + " (SO_PRIORITY): " + errno_text(errno) +
                 "; 7 needs CAP_NET_ADMIN"};
  }
  if (options.segmentation_offload && !set_option(fd, SOL_UDP, UDP_SEGMENT, 0)) {
    return Error{"the kernel does not segment UDP sends (UDP_SEGMENT): " + errno_text(errno) +
                 "; set segmentation_offload: false"};
  }
  if (options.departure_times && !allow_departures(fd)) {
    return Error{"the kernel takes no departure times on a UDP socket (SO_TXTIME): " + errno_text(errno)};
  }
  if (options.shares_port && !set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1)) return cannot_share();
  constexpr const char* kHolders =
      "another process holds this source port; end it, or keep it off (sysctl net.ipv4.ip_local_reserved_ports)";
  if (const auto bound = bind_socket(fd, ip, src_port, kHolders); !bound) return bound.error();
  return sender;
}

}  // namespace etloop
