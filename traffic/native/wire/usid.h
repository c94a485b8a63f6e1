// SRv6 micro segments (RFC 9800, NEXT-CSID with a 32-bit block and 16-bit identifiers): the destination address of the outer IPv6
// header carries up to six, and the node that the first one identifies shifts it out. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ip_address.h"

namespace etloop::usid {

inline constexpr size_t kOuterHeaderBytes = 40;
inline constexpr size_t kMostUsids = 6;

// First 48 bits of an address, by which a switch forwards.
struct Head {
  uint32_t block = 0;
  uint16_t usid = 0;  // 0: none left

  bool operator==(const Head&) const = default;
};

Head head_of(const IpAddress& carrier);
// Remove the first identifier: the others move up, and the last place becomes 0.
void shift(IpAddress& carrier);

// Route of packets to one host: one of several identifiers at each tier, chosen by the packet's entropy value, and the host's
// identifier for decapsulation.
struct Route {
  IpAddress to = {};  // inner destination
  uint32_t block = 0;
  std::vector<std::vector<uint16_t>> tiers;  // each has one identifier or more
  uint16_t decapsulation = 0;
};

// Return the outer destination for an entropy value, which is read as digits, those of the first tier lowest. With tiers whose
// sizes are powers of two these are bit fields.
IpAddress carrier_of(const Route& route, uint16_t entropy);

// Whether the route fits one address and has no identifier 0.
bool is_sound(const Route& route);

// Identifier by which a host removes the outer header of a packet.
struct End {
  uint32_t block = 0;
  uint16_t decapsulation = 0;  // 0: the host does not decapsulate

  bool is_for(const IpAddress& carrier) const {
    return decapsulation != 0 && head_of(carrier) == Head{block, decapsulation};
  }
};

}  // namespace etloop::usid
