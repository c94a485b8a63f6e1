// Link addresses of next hops from the kernel's tables, by rtnetlink: the kernel does ARP and neighbour discovery, and a port
// that writes Ethernet headers queries the results.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "port/udp_socket.h"
#include "wire/ethernet.h"

namespace etloop {

// An interface of this host.
struct Interface {
  int index = 0;
  std::string name;
  ethernet::Mac mac{};
  int mtu = 0;
};
// Find the named interface or, without a name, the one with `address`.
Result<Interface> find_interface(const std::string& name, const IpAddress& address);

class Neighbours {
 public:
  Result<void> open();
  // Return the next hop towards `destination` through the interface: the destination or a gateway.
  Result<IpAddress> next_hop(const Interface& interface, const IpAddress& source, const IpAddress& destination);
  // Return its link address. nullopt: not known yet; its resolution was requested.
  std::optional<ethernet::Mac> look_up(const Interface& interface, const IpAddress& hop);

 private:
  Descriptor socket_;
  uint32_t sequence_ = 0;
};

}  // namespace etloop
