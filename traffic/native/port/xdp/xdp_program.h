// The XDP program of an AF_XDP port, assembled by hand and loaded by the bpf() system call, so that no library is needed.
//
// It hands RoCEv2 (UDP over IPv4 without options or IPv6, to one port) and pause frames to the socket of the queue they came to,
// and passes everything else on to the kernel, which goes on to answer ARP and neighbour discovery.
#pragma once

#include <string>

#include "base/result.h"
#include "port/udp_socket.h"

namespace etloop {

class XdpProgram {
 public:
  // Loads the program and its map of `queues` sockets and attaches it to an interface, in the driver where that is
  // possible, else in the kernel's generic path. It leaves with this object.
  Result<void> attach(int interface_index, const std::string& interface, uint16_t udp_port, uint32_t queues);
  // From now on what comes to a queue goes to this socket.
  Result<void> give(uint32_t queue, int socket);
  bool in_driver() const { return in_driver_; }

 private:
  Descriptor map_;
  Descriptor program_;
  Descriptor link_;
  bool in_driver_ = false;
};

}  // namespace etloop
