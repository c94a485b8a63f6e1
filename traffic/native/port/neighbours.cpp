#include "port/neighbours.h"

#include <ifaddrs.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

namespace etloop {
namespace {

constexpr size_t kAnswerBytes = 8192;

// A netlink request with attributes and space for them.
template <typename Body>
struct Request {
  alignas(NLMSG_ALIGNTO) std::array<uint8_t, 256> bytes{};

  Request(uint16_t type, uint16_t flags, uint32_t sequence) {
    header().nlmsg_type = type;
    header().nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
    header().nlmsg_seq = sequence;
    header().nlmsg_len = NLMSG_LENGTH(sizeof(Body));
  }
  nlmsghdr& header() { return *reinterpret_cast<nlmsghdr*>(bytes.data()); }
  Body& body() { return *static_cast<Body*>(NLMSG_DATA(&header())); }
  void add(uint16_t type, const void* value, size_t length) {
    auto* attribute = reinterpret_cast<rtattr*>(bytes.data() + NLMSG_ALIGN(header().nlmsg_len));
    attribute->rta_type = type;
    attribute->rta_len = static_cast<uint16_t>(RTA_LENGTH(length));
    std::memcpy(RTA_DATA(attribute), value, length);
    header().nlmsg_len = static_cast<uint32_t>(NLMSG_ALIGN(header().nlmsg_len) + RTA_ALIGN(attribute->rta_len));
  }
  void add(uint16_t type, const IpAddress& ip) {
    const size_t skipped = ip.is_v4() ? 12 : 0;
    add(type, ip.bytes.data() + skipped, ip.bytes.size() - skipped);
  }
};

uint8_t family_of(const IpAddress& ip) { return ip.is_v4() ? AF_INET : AF_INET6; }

using Answer = std::array<uint8_t, kAnswerBytes>;

// Send a request and read until its answer. Zero, or the kernel's error.
int converse(int fd, nlmsghdr& request, Answer& answer, nlmsghdr*& reply) {
  if (send(fd, &request, request.nlmsg_len, 0) < 0) return errno;
  while (true) {
    const ssize_t bytes = recv(fd, answer.data(), answer.size(), 0);
    if (bytes < 0) return errno;
    auto left = static_cast<uint32_t>(bytes);
    for (auto* header = reinterpret_cast<nlmsghdr*>(answer.data()); NLMSG_OK(header, left); header = NLMSG_NEXT(header, left)) {
      if (header->nlmsg_seq != request.nlmsg_seq) continue;
      if (header->nlmsg_type == NLMSG_ERROR) return -static_cast<const nlmsgerr*>(NLMSG_DATA(header))->error;
      reply = header;
      return 0;
    }
  }
}

// Find an attribute by type after a message body.
template <typename Body>
const rtattr* find(nlmsghdr* reply, uint16_t type) {
  auto* attribute = reinterpret_cast<const rtattr*>(static_cast<uint8_t*>(NLMSG_DATA(reply)) + NLMSG_ALIGN(sizeof(Body)));
  auto left = static_cast<int>(NLMSG_PAYLOAD(reply, sizeof(Body)));
  for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
    if (attribute->rta_type == type) return attribute;
  }
  return nullptr;
}

std::string interface_of(const IpAddress& address) {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(raw, &freeifaddrs);
  for (const ifaddrs* entry = raw; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const bool four = entry->ifa_addr->sa_family == AF_INET;
    if (!four && entry->ifa_addr->sa_family != AF_INET6) continue;
    SocketAddress found;
    std::memcpy(&found.any, entry->ifa_addr, four ? sizeof found.four : sizeof found.six);
    if (found.ip() == address) return entry->ifa_name;
  }
  return {};
}

}  // namespace

Result<Interface> find_interface(const std::string& name, const IpAddress& address) {
  Interface out;
  out.name = name.empty() ? interface_of(address) : name;
  if (out.name.empty()) {
    return Error{"address " + address.text() + " is not on this host; name an address that `ip address` lists"};
  }
  const Descriptor asked(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strncpy(request.ifr_name, out.name.c_str(), sizeof request.ifr_name - 1);
  if (ioctl(asked.get(), SIOCGIFINDEX, &request) != 0) {
    return Error{"there is no interface " + out.name + "; write one that `ip link` lists"};
  }
  out.index = request.ifr_ifindex;
  if (ioctl(asked.get(), SIOCGIFMTU, &request) == 0) out.mtu = request.ifr_mtu;
  if (ioctl(asked.get(), SIOCGIFHWADDR, &request) == 0) {
    std::memcpy(out.mac.data(), request.ifr_hwaddr.sa_data, out.mac.size());
  }
  return out;
}

Result<void> Neighbours::open() {
  socket_ = Descriptor(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (socket_.get() >= 0) return {};
  return Error{"cannot ask the kernel for routes and neighbours (rtnetlink): " + errno_text(errno)};
}

Result<IpAddress> Neighbours::next_hop(const Interface& interface, const IpAddress& source, const IpAddress& destination) {
  Request<rtmsg> request(RTM_GETROUTE, 0, ++sequence_);
  const uint8_t bits = destination.is_v4() ? 32 : 128;
  request.body().rtm_family = family_of(destination);
  request.body().rtm_dst_len = bits;
  request.body().rtm_src_len = bits;
  request.add(RTA_DST, destination);
  request.add(RTA_SRC, source);
  request.add(RTA_OIF, &interface.index, sizeof interface.index);
  Answer answer;
  nlmsghdr* reply = nullptr;
  if (const int code = converse(socket_.get(), request.header(), answer, reply); code != 0) {
    return Error{"no route from " + source.text() + " to " + destination.text() + " by " + interface.name + ": " +
                 errno_text(code) + "; add one, or correct addresses and interface"};
  }
  const rtattr* gateway = find<rtmsg>(reply, RTA_GATEWAY);
  if (gateway == nullptr) return destination;
  IpAddress hop = destination.is_v4() ? IpAddress::v4(0) : IpAddress{};
  const size_t skipped = destination.is_v4() ? 12 : 0;
  std::memcpy(hop.bytes.data() + skipped, RTA_DATA(gateway), hop.bytes.size() - skipped);
  return hop;
}

std::optional<ethernet::Mac> Neighbours::look_up(const Interface& interface, const IpAddress& hop) {
  constexpr uint16_t kKnown = NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY;
  Request<ndmsg> request(RTM_GETNEIGH, 0, ++sequence_);
  request.body().ndm_family = family_of(hop);
  request.body().ndm_ifindex = interface.index;
  request.add(NDA_DST, hop);
  Answer answer;
  nlmsghdr* reply = nullptr;
  if (converse(socket_.get(), request.header(), answer, reply) == 0) {
    const rtattr* link = find<ndmsg>(reply, NDA_LLADDR);
    ethernet::Mac mac{};
    const auto state = static_cast<const ndmsg*>(NLMSG_DATA(reply))->ndm_state;
    if (link != nullptr && RTA_PAYLOAD(link) == mac.size() && (state & kKnown) != 0) {
      std::memcpy(mac.data(), RTA_DATA(link), mac.size());
      return mac;
    }
  }
  // NTF_USE: resolve it as for a packet of the kernel itself.
  Request<ndmsg> wanted(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK, ++sequence_);
  wanted.body().ndm_family = family_of(hop);
  wanted.body().ndm_ifindex = interface.index;
  wanted.body().ndm_state = NUD_NONE;
  wanted.body().ndm_flags = NTF_USE;
  wanted.add(NDA_DST, hop);
  converse(socket_.get(), wanted.header(), answer, reply);
  return std::nullopt;
}

}  // namespace etloop
