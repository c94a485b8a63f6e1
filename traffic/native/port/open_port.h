// Opens the port of a backend. An error has the reason and the remedy.
#pragma once

#include "plan/plan.h"
#include "port/datagram_port.h"

namespace etloop {

// Open a port of any backend, for one port of a plan.
Result<std::unique_ptr<DevicePort>> open_port(const PortConfig& config, const EnginePlan& plan, int32_t port);

// Open a port of a backend for the engine's own transport.
Result<std::unique_ptr<DatagramPort>> open_datagram_port(const PortConfig& config);

}  // namespace etloop
