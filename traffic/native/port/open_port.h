// From the name of a backend to a port.
#pragma once

#include "port/device_port.h"

namespace etloop {

// Nothing, and `error` says why and what to do, if the port cannot be had on this host.
std::unique_ptr<DevicePort> open_port(const PortConfig& config, std::string& error);

}  // namespace etloop
