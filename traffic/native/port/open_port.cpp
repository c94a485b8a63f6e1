#include "port/open_port.h"

#include "port/packet_port.h"
#include "port/udp_port.h"
#include "port/xdp_port.h"

namespace etloop {

Result<std::unique_ptr<DevicePort>> open_port(const PortConfig& config) {
  switch (config.backend) {
    case Backend::udp: return UdpPort::open(config);
    case Backend::packet: return PacketPort::open(config);
    case Backend::xdp: return XdpPort::open(config);
    case Backend::verbs: break;
  }
  return Error{"this build has no port of this backend; write backend: udp or packet"};
}

}  // namespace etloop
