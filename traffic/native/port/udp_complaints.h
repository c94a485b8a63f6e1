// What a port of UDP sockets says, for people, of what it does otherwise than asked and of sends that the kernel refused.
#pragma once

#include <string>
#include <vector>

#include "port/device_port.h"

namespace etloop {

// `own_priorities`: the kernel takes a priority for single packets.
std::vector<std::string> udp_degraded(const PortConfig& config, bool own_priorities);

// `code`: the errno of the send.
std::string udp_send_error(const PortConfig& config, int code);

}  // namespace etloop
