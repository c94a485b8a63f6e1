// Why the kernel dropped what came to UDP sockets. A socket counts all its drops together; their reasons are counted for the
// whole network namespace (/proc/net/snmp, snmp6), so a reason is held to be a socket's only as far as it has drops. Damaged
// datagrams of up to 76 bytes (CHECKSUM_BREAK in linux/skbuff.h; acknowledgements are) are found before their socket is, and
// counted for none: they are a port's where nobody else of its namespace got anything.
#pragma once

#include <cstdint>
#include <string_view>

#include "port/udp_socket.h"

namespace etloop {

struct UdpErrors {
  int64_t no_room = 0;  // a receive buffer was full, or no memory was left
  int64_t damaged = 0;  // a wrong checksum
  int64_t delivered = 0;  // datagrams that sockets got
};

// Of the texts of both files; what is not in them is 0.
UdpErrors read_udp_errors(std::string_view snmp, std::string_view snmp6);

struct UdpDrops {
  int64_t no_room = 0;
  int64_t damaged = 0;
};

// Of a port whose sockets dropped and received so many, by what its namespace counted meanwhile.
UdpDrops divided(const UdpErrors& meanwhile, int64_t drops, int64_t received);

class UdpDropReasons {
 public:
  // Of the network namespace that the calling thread is in, from now on.
  UdpDropReasons();
  // Of so many drops of sockets of that namespace since then, which received so many. All are for want of room where the
  // kernel does not tell.
  UdpDrops divide(int64_t drops, int64_t received) const;

 private:
  bool look(UdpErrors& found) const;

  Descriptor snmp_;
  Descriptor snmp6_;
  UdpErrors before_;
  bool told_ = false;
};

}  // namespace etloop
