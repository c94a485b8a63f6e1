// Attributes the kernel's UDP drops to reasons. A socket counts its drops without reasons; reasons are counted per network
// namespace (/proc/net/snmp, snmp6), and attributed to a socket only up to its drops. Damaged datagrams of up to 76 bytes
// (CHECKSUM_BREAK in linux/skbuff.h; acknowledgements are) are dropped before socket lookup, and counted by no socket: they count
// for a port if nothing else in its namespace received anything.
#pragma once

#include <cstdint>
#include <string_view>

#include "port/udp_socket.h"

namespace etloop {

struct UdpErrors {
  int64_t no_room = 0;  // full receive buffer, or out of memory
  int64_t damaged = 0;  // bad checksum
  int64_t delivered = 0;  // datagrams delivered to sockets
};

// Parse the texts of both files; missing counters are 0.
UdpErrors read_udp_errors(std::string_view snmp, std::string_view snmp6);

struct UdpDrops {
  int64_t no_room = 0;
  int64_t damaged = 0;
};

// Attribute the drops of a port's sockets, given their drops and receptions, and the namespace's counters in the same time.
UdpDrops divided(const UdpErrors& meanwhile, int64_t drops, int64_t received);

class UdpDropReasons {
 public:
  // Start counting in the network namespace of the calling thread.
  UdpDropReasons();
  // Attribute `drops` of sockets in that namespace since then, which received `received` datagrams. Without information from the
  // kernel all count as lack of room.
  UdpDrops divide(int64_t drops, int64_t received) const;

 private:
  bool look(UdpErrors& found) const;

  Descriptor snmp_;
  Descriptor snmp6_;
  UdpErrors before_;
  bool told_ = false;
};

}  // namespace etloop
