// Texts about deviations of a UDP port from its configuration, and about failed sends.
#pragma once

#include <string>
#include <vector>

#include "port/device_port.h"

namespace etloop {

// `own_priorities`: the kernel accepts a priority per packet.
std::vector<std::string> udp_degraded(const PortConfig& config, bool own_priorities);

// `code`: the errno of the send.
std::string udp_send_error(const PortConfig& config, int code);

}  // namespace etloop
