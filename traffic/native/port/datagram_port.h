// A port whose transport is ours: the core's packets travel as datagrams over sockets of the kernel.
#pragma once

#include "core/port.h"
#include "port/device_port.h"

namespace etloop {

// The packets' side first: it is called for every run, the loop's once a turn.
class DatagramPort : public TxPort, public DevicePort {
 public:
  // Opens a flow from one of the port's addresses.
  virtual Result<FlowId> add_flow(uint16_t address, const IpAddress& dst_ip, uint16_t src_port, uint8_t traffic_class) = 0;
  // Receives what is there, at most about `budget` datagrams, and hands every packet to `sink` with the time at which
  // the kernel took it from the device, on the monotonic clock. Returns their number.
  virtual size_t receive(PortSink& sink, size_t budget) = 0;
  // A descriptor that is readable when something has come; -1: of a port that cannot be one of a card's planes.
  virtual int arrival_fd() const { return -1; }
  // How long acknowledgements that nobody waits for may stay, so that one stands for several.
  virtual Nanos answer_patience_ns() const { return 0; }

  Result<std::unique_ptr<Core>> make_core(const EnginePlan& plan, int32_t port) override;
  size_t receive_into(Core& core, size_t budget) override;
  bool transmit_from(Core& core, Clock& clock, size_t budget) override;
};

}  // namespace etloop
