#include "port/open_port.h"

#include "port/packet_port.h"
#include "port/udp_port.h"
#include "port/verbs/verbs_port.h"
#include "port/xdp/xdp_port.h"

namespace etloop {

Result<std::unique_ptr<DevicePort>> open_port(const PortConfig& config, const EnginePlan& plan, int32_t port) {
  if (config.backend != Backend::verbs) return open_datagram_port(config);
  const PlannedPort& planned = plan.ports[static_cast<size_t>(port)];
  return VerbsPort::open({planned.device, planned.gid_index, planned.addresses, plan.transport, carrier_needs(plan, port),
                          unmet_by_a_card(config, !plan.faults.empty())});
}

Result<std::unique_ptr<DatagramPort>> open_datagram_port(const PortConfig& config) {
  switch (config.backend) {
    case Backend::udp: return UdpPort::open(config);
    case Backend::packet: return PacketPort::open(config);
    case Backend::xdp: return XdpPort::open(config);
    case Backend::verbs: break;
  }
  return Error{"this build has no port of this backend; write backend: udp or packet"};
}

}  // namespace etloop
