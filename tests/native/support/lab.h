// A network namespace of the test's own with a veth pair, and what passes its ends.
#pragma once

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "port/udp_socket.h"
#include "support/check.h"

namespace etloop::test {

// Leaves the host's network for a namespace with what `commands` make there. False: `reason` says why not.
inline bool enter_lab(const std::string& commands, std::string& reason) {
  const std::string be_root = "0 " + std::to_string(getuid()) + " 1";
  if (unshare(CLONE_NEWNET) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
      reason = "no network namespace to be had: " + errno_text(errno);
      return false;
    }
    std::ofstream("/proc/self/uid_map") << be_root;  // else `ip` would start without the rights of this namespace
  }
  if (std::system(commands.c_str()) == 0) return true;
  reason = "no veth pair to be had";
  return false;
}

// Sees all of a protocol (of linux/if_ether.h) that arrives at an interface; of all protocols also what is sent there.
inline Descriptor frame_socket(const char* interface, uint16_t protocol = ETH_P_ALL) {
  Descriptor capture(socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(protocol)));
  const int buffer_bytes = 64 << 20;
  setsockopt(capture.get(), SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
  sockaddr_ll link{};
  link.sll_family = AF_PACKET;
  link.sll_protocol = htons(protocol);
  link.sll_ifindex = static_cast<int>(if_nametoindex(interface));
  CHECK_EQ(bind(capture.get(), reinterpret_cast<const sockaddr*>(&link), sizeof link), 0);
  return capture;
}

}  // namespace etloop::test
