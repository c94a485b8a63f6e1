#include "port/datagram_port.h"

#include "core/core.h"

namespace etloop {

Result<std::unique_ptr<Core>> DatagramPort::make_core(const EnginePlan& plan, int32_t port) {
  const auto open_flow = [this](uint16_t address, const IpAddress& dst_ip, uint16_t src_port, uint8_t traffic_class) {
    return add_flow(address, dst_ip, src_port, traffic_class);
  };
  auto core = Core::make(plan, port, receive_buffer_bytes(), open_flow);
  if (core) (*core)->set_answer_patience(answer_patience_ns());
  return core;
}

size_t DatagramPort::receive_into(Core& core, size_t budget) { return receive(core, budget); }

bool DatagramPort::transmit_from(Core& core, Clock& clock, size_t budget) { return core.transmit(*this, clock, budget); }

}  // namespace etloop
