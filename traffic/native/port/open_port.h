// From the name of a backend to a port. A failure says why the port cannot be had on this host, and what to do.
#pragma once

#include "plan/plan.h"
#include "port/datagram_port.h"

namespace etloop {

// A port of any backend, for one port of a plan.
Result<std::unique_ptr<DevicePort>> open_port(const PortConfig& config, const EnginePlan& plan, int32_t port);

// A port of a backend whose transport is ours.
Result<std::unique_ptr<DatagramPort>> open_datagram_port(const PortConfig& config);

}  // namespace etloop
