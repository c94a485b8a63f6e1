#include "port/open_port.h"

#include "port/packet_port.h"
#include "port/udp_port.h"
#include "port/xdp_port.h"

namespace etloop {

std::unique_ptr<DevicePort> open_port(const PortConfig& config, std::string& error) {
  switch (config.backend) {
    case Backend::udp: return UdpPort::open(config, error);
    case Backend::packet: return PacketPort::open(config, error);
    case Backend::xdp: return XdpPort::open(config, error);
    case Backend::verbs: break;
  }
  error = "this build has no port of this backend; write backend: udp or packet";
  return nullptr;
}

}  // namespace etloop
