#include "udp_socket.h"

#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

namespace etloop {
namespace {

constexpr int kSendBufferBytes = 4 << 20;  // some 60 segmented sends in a device queue

bool set_option(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof value) == 0;
}

// Asks beyond the limit of the system where we may, and as far as the limit where we may not.
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

Descriptor new_socket(std::string& error) {
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0 && errno == EMFILE) {
    raise_descriptor_limit();
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  }
  if (fd < 0) {
    error = "cannot open a UDP socket: " + errno_text(errno);
    if (errno == EMFILE) error += "; raise the limit of open files (ulimit -n), one is needed per source port";
  }
  return Descriptor(fd);
}

bool bind_socket(int fd, uint32_t ip, uint16_t port, const char* holders, std::string& error) {
  const sockaddr_in address = socket_address(ip, port);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return true;
  const std::string where = ip_text(ip) + " UDP port " + std::to_string(port);
  switch (errno) {
    case EADDRINUSE: error = where + " is in use; " + holders; break;
    case EADDRNOTAVAIL:
      error = "address " + ip_text(ip) + " is not on this host; name an address that `ip -4 address` lists";
      break;
    case EACCES: error = where + " needs privileges; use a port above 1023"; break;
    default: error = "cannot bind " + where + ": " + errno_text(errno);
  }
  return false;
}

}  // namespace

std::string ip_text(uint32_t address) {
  const in_addr network{htonl(address)};
  std::array<char, INET_ADDRSTRLEN> text{};
  return inet_ntop(AF_INET, &network, text.data(), text.size());
}

std::string errno_text(int code) { return std::generic_category().message(code); }

sockaddr_in socket_address(uint32_t ip, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(ip);
  address.sin_port = htons(port);
  return address;
}

Descriptor open_receiver(uint32_t ip, uint16_t udp_port, int64_t buffer_bytes, std::string& error) {
  Descriptor receiver = new_socket(error);
  const int fd = receiver.get();
  if (fd < 0) return receiver;
  set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, buffer_bytes);
  if (!set_option(fd, SOL_UDP, UDP_GRO, 1)) {
    error = "the kernel does not join received UDP datagrams (UDP_GRO): " + errno_text(errno) + "; Linux 5.0 does";
    return Descriptor();
  }
  if (!set_option(fd, SOL_IP, IP_RECVTOS, 1)) {
    error = "the kernel does not tell the traffic class of datagrams (IP_RECVTOS): " + errno_text(errno);
    return Descriptor();
  }
  constexpr const char* kHolders =
      "end the other agent that uses this address, or unload the kernel's software RoCE (modprobe -r rdma_rxe), or "
      "choose another udp_port";
  if (!bind_socket(fd, ip, udp_port, kHolders, error)) return Descriptor();
  return receiver;
}

Descriptor open_sender(uint32_t ip, uint16_t src_port, const SenderOptions& options, std::string& error) {
  Descriptor sender = new_socket(error);
  const int fd = sender.get();
  if (fd < 0) return sender;
  set_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, kSendBufferBytes);
  set_option(fd, SOL_SOCKET, SO_RCVBUF, 0);  // nothing of ours comes back to a source port
  // The identification of an IPv4 packet is inside the ICRC, and is only known with this setting.
  if (!set_option(fd, SOL_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO) ||
      !set_option(fd, SOL_IP, IP_TOS, options.traffic_class)) {
    error = "cannot set don't-fragment and traffic class on a UDP socket: " + errno_text(errno);
    return Descriptor();
  }
  if (options.segmentation_offload && !set_option(fd, SOL_UDP, UDP_SEGMENT, 0)) {
    error = "the kernel does not segment UDP sends (UDP_SEGMENT): " + errno_text(errno) +
            "; set segmentation_offload: false";
    return Descriptor();
  }
  constexpr const char* kHolders =
      "another process holds this source port; end it, or keep it off (sysctl net.ipv4.ip_local_reserved_ports)";
  if (!bind_socket(fd, ip, src_port, kHolders, error)) return Descriptor();
  return sender;
}

}  // namespace etloop
