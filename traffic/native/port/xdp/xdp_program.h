// The XDP program of an AF_XDP port, assembled here and loaded by the bpf() system call, so that no library is needed.
//
// It redirects RoCEv2 (UDP over IPv4 without options or IPv6, to one port) and pause frames to the socket of their queue, and
// passes all other packets to the kernel, which continues to answer ARP and neighbour discovery.
#pragma once

#include <string>

#include "base/result.h"
#include "port/udp_socket.h"

namespace etloop {

class XdpProgram {
 public:
  // Load the program and its map of `queues` sockets, and attach it to an interface, in the driver if possible, otherwise in the
  // kernel's generic path. Detached by the destructor.
  Result<void> attach(int interface_index, const std::string& interface, uint16_t udp_port, uint32_t queues);
  // Direct the packets of a queue to this socket.
  Result<void> give(uint32_t queue, int socket);
  bool in_driver() const { return in_driver_; }

 private:
  Descriptor map_;
  Descriptor program_;
  Descriptor link_;
  bool in_driver_ = false;
};

}  // namespace etloop
