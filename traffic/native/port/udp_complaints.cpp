#include "port/udp_complaints.h"

#include <algorithm>
#include <cerrno>

#include "port/udp_socket.h"
#include "wire/wire.h"

namespace etloop {

std::vector<std::string> udp_degraded(const PortConfig& config, bool own_priorities) {
  std::vector<std::string> out;
  if (config.vlan_id < 0) return out;
  out.push_back("UDP sockets write no VLAN tags: an interface of that VLAN must, which maps the priority given with "
                "packets (ip link set ... type vlan egress-qos-map " +
                std::to_string(config.vlan_priority) + ":" + std::to_string(config.vlan_priority) + ")");
  if (!own_priorities) {
    out.emplace_back("the kernel takes no priority for single packets (Linux 6.14 does): congestion notifications, and other "
                     "packets with marks of their own, have the priority that their DSCP gives them, mostly 0");
  }
  return out;
}

std::string udp_send_error(const PortConfig& config, int code) {
  const std::string text = "the kernel did not send a datagram: " + errno_text(code);
  if (code != EMSGSIZE) return text;
  const bool all_v4 = std::ranges::all_of(config.addresses, [](const IpAddress& ip) { return ip.is_v4(); });
  const size_t ip_udp_bytes = all_v4 ? 28 : 48;
  const size_t needed_mtu = wire::datagram_bytes(wire::Opcode::write_only_imm, config.path_mtu) + ip_udp_bytes;
  return text + "; raise the MTU of every interface on the path to " + std::to_string(needed_mtu) +
         ", or lower the path MTU from " + std::to_string(config.path_mtu);
}

}  // namespace etloop
