// From the name of a backend to a port.
#pragma once

#include "port/device_port.h"

namespace etloop {

// A failure says why the port cannot be had on this host, and what to do.
Result<std::unique_ptr<DevicePort>> open_port(const PortConfig& config);

}  // namespace etloop
