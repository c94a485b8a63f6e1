// Link addresses of next hops from the kernel's own tables, by rtnetlink: it keeps doing ARP and neighbour discovery, and
// a port that writes Ethernet headers itself asks it for the outcome.
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
// The named interface, or, with no name, the one that has `address`.
Result<Interface> find_interface(const std::string& name, const IpAddress& address);

class Neighbours {
 public:
  Result<void> open();
  // The next hop towards `destination` when leaving by the interface: the destination itself, or a gateway.
  Result<IpAddress> next_hop(const Interface& interface, const IpAddress& source, const IpAddress& destination);
  // Its link address. Nothing: the kernel has none yet, and was asked to find it.
  std::optional<ethernet::Mac> look_up(const Interface& interface, const IpAddress& hop);

 private:
  Descriptor socket_;
  uint32_t sequence_ = 0;
};

}  // namespace etloop
