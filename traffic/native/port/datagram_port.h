// A port for the engine's own transport: the core's packets travel as datagrams over kernel sockets.
#pragma once

#include "core/port.h"
#include "port/device_port.h"

namespace etloop {

// TxPort is the first base: it is called for every run, DevicePort once per turn.
class DatagramPort : public TxPort, public DevicePort {
 public:
  // Open a flow from one of the port's addresses.
  virtual Result<FlowId> add_flow(uint16_t address, const IpAddress& dst_ip, uint16_t src_port, uint8_t traffic_class) = 0;
  // Receive at most about `budget` datagrams, and pass every packet to `sink` with its arrival time at the kernel, on the
  // monotonic clock. Returns their number.
  virtual size_t receive(PortSink& sink, size_t budget) = 0;
  // Descriptor that is readable after an arrival; -1: this port cannot be a plane of a card.
  virtual int arrival_fd() const { return -1; }
  // How long unneeded acknowledgements may be held, so that one covers several.
  virtual Nanos answer_patience_ns() const { return 0; }

  Result<std::unique_ptr<Core>> make_core(const EnginePlan& plan, int32_t port) override;
  size_t receive_into(Core& core, size_t budget) override;
  bool transmit_from(Core& core, Clock& clock, size_t budget) override;
};

}  // namespace etloop
